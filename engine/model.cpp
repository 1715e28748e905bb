// The transformer as a list of ops: one forward for all families over kernels::Backend. What a family lacks (a gate, a bias, rope)
// is an empty view here; what an adapter changes is asked for at each projection and norm. Built by model_load.cpp.
#include "engine/model.h"

#include <algorithm>

#include "engine/adapter.h"
#include "engine/model_weights.h"
#include "engine/rope.h"

namespace lorry::engine {
namespace {

using kernels::Matrix;

// Activations of one step, allocated once for the largest.
class Activation {
public:
    Activation(kernels::Backend& backend, std::int64_t rows_max, std::int64_t columns)
        : buffer_(backend.allocate(static_cast<std::size_t>(rows_max * columns) * sizeof(float))), columns_(columns) {}

    // The first rows, in the format that the reading op wants.
    Matrix view(std::int64_t rows, kernels::Format format = kernels::Format::float32) const {
        return {.data = buffer_->data(), .format = format, .rows = rows, .columns = columns_, .stride = columns_};
    }

private:
    std::unique_ptr<kernels::Buffer> buffer_;
    std::int64_t columns_;
};

// Calls run(row_begin, row_count, change) for consecutive rows: with a group's change where get(adapter) finds one, with nullptr for
// all rows between.
template <typename Get, typename Run>
void for_changed_rows(std::span<const AdapterRows> groups, std::int64_t rows, Get get, Run run) {
    std::int64_t begin = 0;
    for (const AdapterRows& group : groups) {
        const auto* change = get(*group.adapter);
        if (change == nullptr) continue;
        if (begin < group.row_begin) run(begin, group.row_begin - begin, decltype(change)(nullptr));
        run(group.row_begin, group.row_count, change);
        begin = group.row_begin + group.row_count;
    }
    using Change = decltype(get(*groups.front().adapter));
    if (begin < rows) run(begin, rows - begin, Change(nullptr));
}

class Transformer final : public Model {
public:
    Transformer(ModelParts parts, kernels::Backend& backend, std::int64_t rows_max, std::int64_t sample_rows_max)
        : parts_(std::move(parts)),
          backend_(backend),
          rope_(config(), backend, rows_max),
          rows_max_(rows_max),
          sample_rows_max_(sample_rows_max),
          residual_(backend, rows_max, config().hidden),
          normed_(backend, rows_max, config().hidden),
          qkv_(backend, rows_max, out_features_of(config(), Projection::qkv)),
          attended_(backend, rows_max, config().heads * config().head_dim),
          gate_up_(backend, rows_max, out_features_of(config(), Projection::gate_up)),
          activated_(backend, rows_max, config().intermediate),
          sampled_(backend, sample_rows_max, config().hidden),
          sampled_normed_(backend, sample_rows_max, config().hidden),
          logits_(backend, sample_rows_max, config().vocabulary) {}

    const ModelConfig& config() const override { return parts_.config; }
    kernels::KvShape kv_shape() const override { return kv_shape_of(config()); }
    const std::string& fingerprint() const override { return parts_.fingerprint; }
    const ModelLayout& layout() const override { return parts_.layout; }
    const Checkpoint& checkpoint() const override { return *parts_.checkpoint; }
    std::size_t weight_bytes() const override;

    std::int32_t rope_row(std::int64_t position, std::int64_t prompt_tokens) override { return rope_.row(position, prompt_tokens); }
    bool kv_depends_on_prompt_length(std::int64_t prompt_tokens) const override { return rope_.depends_on_prompt_length(prompt_tokens); }

    Matrix forward(const ForwardArgs& args, kernels::KvCache& cache) override;

private:
    // Where an op stands and which rows run with which adapters there.
    struct Site {
        std::int64_t layer = 0;
        std::span<const AdapterRows> adapters;
    };
    void normalize(const Norm& base, NormSite norm, const Site& site, const Matrix& out, const Matrix& in);
    void project(const kernels::PackedWeight& weight, kernels::Vector bias, Projection projection, const Site& site, const Matrix& out,
                 const Matrix& in, bool accumulate);
    Matrix compute_logits(const ForwardArgs& args, const Matrix& residual);

    const ModelParts parts_;
    kernels::Backend& backend_;
    RopeTable rope_;
    const std::int64_t rows_max_;
    const std::int64_t sample_rows_max_;
    const Activation residual_;
    const Activation normed_;
    const Activation qkv_;
    const Activation attended_;
    const Activation gate_up_;
    const Activation activated_;
    const Activation sampled_;
    const Activation sampled_normed_;
    const Activation logits_;
    // Kept between steps for their capacity.
    std::vector<kernels::LoraGroup> lora_groups_;
    std::vector<kernels::BiasGroup> bias_groups_;
    std::vector<AdapterRows> sampled_groups_;
};

Matrix Transformer::forward(const ForwardArgs& args, kernels::KvCache& cache) {
    const kernels::StepInputs& step = args.step;
    const ModelWeights& weights = parts_.weights;
    CHECK(step.rows > 0 && step.rows <= rows_max_, "the plan keeps within rows_max");

    const Matrix residual = residual_.view(step.rows);
    const Matrix qkv = qkv_.view(step.rows);
    const Matrix gate_up = gate_up_.view(step.rows);
    backend_.embed({.out = residual, .tokens = *weights.tokens, .positions = weights.positions.get(), .step = step});

    for (std::int64_t index = 0; index < config().layers; ++index) {
        const Layer& layer = weights.layers[static_cast<std::size_t>(index)];
        const Site site{.layer = index, .adapters = args.adapters};

        const Matrix attention_in = normed_.view(step.rows, layer.qkv.weight->input_format());
        normalize(layer.attention_norm, NormSite::attention, site, attention_in, residual);
        project(*layer.qkv.weight, layer.qkv.bias, Projection::qkv, site, qkv, attention_in, false);
        backend_.rope_store({.qkv = qkv,
                             .heads = config().heads,
                             .kv_heads = config().kv_heads,
                             .head_dim = config().head_dim,
                             .rope_table = rope_.matrix(),
                             .q_norm = layer.q_norm,
                             .k_norm = layer.k_norm,
                             .norm_epsilon = static_cast<float>(config().norm_epsilon),
                             .cache = cache,
                             .layer = index,
                             .step = step});
        const Matrix attended = attended_.view(step.rows, layer.output.weight->input_format());
        backend_.attention({.out = attended,
                            .qkv = qkv,
                            .heads = config().heads,
                            .kv_heads = config().kv_heads,
                            .head_dim = config().head_dim,
                            .scale = layer.attention_scale,
                            .window = layer.window,
                            .cache = cache,
                            .layer = index,
                            .step = step});
        project(*layer.output.weight, layer.output.bias, Projection::output, site, residual, attended, true);

        const Matrix mlp_in = normed_.view(step.rows, layer.gate_up.weight->input_format());
        normalize(layer.mlp_norm, NormSite::mlp, site, mlp_in, residual);
        project(*layer.gate_up.weight, layer.gate_up.bias, Projection::gate_up, site, gate_up, mlp_in, false);
        const Matrix activated = activated_.view(step.rows, layer.down.weight->input_format());
        backend_.activation({.kind = config().activation, .gated = config().gated, .out = activated, .in = gate_up});
        project(*layer.down.weight, layer.down.bias, Projection::down, site, residual, activated, true);
    }
    return compute_logits(args, residual);
}

// Only rows that sample need the final norm and the head.
Matrix Transformer::compute_logits(const ForwardArgs& args, const Matrix& residual) {
    const ModelWeights& weights = parts_.weights;
    const auto samples = args.step.sample_rows;
    const auto rows = static_cast<std::int64_t>(samples.size());
    CHECK(rows <= sample_rows_max_, "the plan keeps within sample_rows_max");
    const Matrix logits = logits_.view(rows);
    if (rows == 0) return logits;

    // The same adapters over the gathered rows.
    sampled_groups_.clear();
    for (const AdapterRows& group : args.adapters) {
        const auto begin = std::lower_bound(samples.begin(), samples.end(), group.row_begin);
        const auto end = std::lower_bound(begin, samples.end(), group.row_begin + group.row_count);
        if (begin != end) sampled_groups_.push_back({begin - samples.begin(), end - begin, group.adapter});
    }
    const Site site{.layer = 0, .adapters = sampled_groups_};
    const kernels::PackedWeight& head = weights.head != nullptr ? *weights.head : *weights.tokens;
    const Matrix sampled = sampled_.view(rows);
    const Matrix normed = sampled_normed_.view(rows, head.input_format());
    backend_.gather_rows({.out = sampled, .in = residual, .step = args.step});
    normalize(weights.final_norm, NormSite::final, site, normed, sampled);
    project(head, {}, Projection::head, site, logits, normed, false);
    return logits;
}

void Transformer::normalize(const Norm& base, NormSite norm, const Site& site, const Matrix& out, const Matrix& in) {
    const auto changed = [&](const Adapter& adapter) { return adapter.norm_at(site.layer, norm); };
    for_changed_rows(site.adapters, in.rows, changed, [&](std::int64_t begin, std::int64_t count, const Norm* change) {
        const Norm& used = change != nullptr ? *change : base;
        backend_.norm({.kind = config().norm,
                       .out = out.slice_rows(begin, count),
                       .in = in.slice_rows(begin, count),
                       .weight = used.weight,
                       .bias = used.bias,
                       .epsilon = static_cast<float>(config().norm_epsilon)});
    });
}

// out (+)= weight · in + bias, then what each group's adapter adds or replaces.
void Transformer::project(const kernels::PackedWeight& weight, kernels::Vector bias, Projection projection, const Site& site,
                          const Matrix& out, const Matrix& in, bool accumulate) {
    const auto replaced = [&](const Adapter& adapter) -> const ReplacedLinear* {
        const AdapterProjection* change = adapter.at(site.layer, projection);
        return change != nullptr && change->whole ? &*change->whole : nullptr;
    };
    for_changed_rows(site.adapters, out.rows, replaced, [&](std::int64_t begin, std::int64_t count, const ReplacedLinear* change) {
        backend_.matmul({.out = out.slice_rows(begin, count),
                         .in = in.slice_rows(begin, count),
                         .weight = change != nullptr ? *change->weight : weight,
                         .bias = change != nullptr ? change->bias : bias,
                         .accumulate = accumulate});
    });

    lora_groups_.clear();
    bias_groups_.clear();
    for (const AdapterRows& group : site.adapters) {
        const AdapterProjection* change = group.adapter->at(site.layer, projection);
        if (change == nullptr) continue;
        for (const ReplacedLinear& part : change->parts) {
            const Matrix rows = out.slice_rows(group.row_begin, group.row_count);
            backend_.matmul({.out = rows.slice_columns(part.out_begin, part.weight->out_features()),
                             .in = in.slice_rows(group.row_begin, group.row_count),
                             .weight = *part.weight,
                             .bias = part.bias});
        }
        if (change->lora != nullptr) lora_groups_.push_back({group.row_begin, group.row_count, change->lora.get()});
        if (!change->bias.empty()) bias_groups_.push_back({group.row_begin, group.row_count, change->bias});
    }
    if (!lora_groups_.empty()) backend_.lora({.out = out, .in = in, .groups = lora_groups_});
    if (!bias_groups_.empty()) backend_.group_bias({.out = out, .groups = bias_groups_});
}

std::size_t Transformer::weight_bytes() const {
    const ModelWeights& weights = parts_.weights;
    std::size_t total = weights.tokens->bytes() + weights.vectors.bytes() + rope_.bytes();
    if (weights.positions != nullptr) total += weights.positions->bytes();
    if (weights.head != nullptr) total += weights.head->bytes();
    for (const Layer& layer : weights.layers) {
        total += layer.qkv.weight->bytes() + layer.output.weight->bytes() + layer.gate_up.weight->bytes() + layer.down.weight->bytes();
    }
    return total;
}

}  // namespace

std::unique_ptr<Model> make_model(ModelParts parts, kernels::Backend& backend, std::int64_t rows_max, std::int64_t sample_rows_max) {
    return std::make_unique<Transformer>(std::move(parts), backend, rows_max, sample_rows_max);
}

}  // namespace lorry::engine
