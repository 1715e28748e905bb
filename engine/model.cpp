// The transformer as a list of ops: one forward pass for all families over kernels::Backend. What a family lacks (a gate, a bias, rope) is
// an empty view here. Each projection and norm looks up what the adapters change in it. Built by model_load.cpp.
#include "engine/model.h"

#include <algorithm>

#include "engine/adapter.h"
#include "engine/model_weights.h"
#include "engine/rope.h"

namespace lorry::engine {
namespace {

using kernels::Matrix;

// Activations of one step, allocated once for the largest step: the rows, then one scale per row for formats that have scales.
class Activation {
public:
    Activation(kernels::Backend& backend, std::int64_t rows_max, std::int64_t columns)
        : backend_(backend), rows_max_(rows_max), columns_(columns) {
        using enum kernels::Format;
        std::size_t row_bytes = 0;
        for (const kernels::Format format : {float32, bfloat16, int8_rows, fp8_rows})
            row_bytes = std::max(row_bytes, static_cast<std::size_t>(backend.row_stride(format, columns)) * kernels::bytes_of(format));
        rows_bytes_ = static_cast<std::size_t>(rows_max) * row_bytes;
        buffer_ = backend.allocate(rows_bytes_ + static_cast<std::size_t>(rows_max) * sizeof(float));
    }

    // The first `rows` rows, in the format that the reading op needs.
    Matrix view(std::int64_t rows, kernels::Format format = kernels::Format::float32) const {
        return {.data = buffer_->data(),
                .format = format,
                .rows = rows,
                .columns = columns_,
                .stride = backend_.row_stride(format, columns_),
                .spare_rows = rows_max_ - rows,
                .row_scales = reinterpret_cast<float*>(static_cast<std::byte*>(buffer_->data()) + rows_bytes_)};
    }

private:
    const kernels::Backend& backend_;
    std::unique_ptr<kernels::Buffer> buffer_;
    std::int64_t rows_max_;
    std::int64_t columns_;
    std::size_t rows_bytes_ = 0;
};

// Calls run(row_begin, row_count, change) for consecutive ranges of rows: with the change of each group for which get(adapter) returns one,
// and with nullptr for the rows between such groups.
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
          sampled_residual_(backend, sample_rows_max, config().hidden),
          sampled_attended_(backend, sample_rows_max, config().heads * config().head_dim),
          logits_(backend, sample_rows_max, config().vocabulary) {}

    const ModelConfig& config() const override { return parts_.config; }
    kernels::KvShape kv_shape() const override { return kv_shape_of(config()); }
    const std::string& fingerprint() const override { return parts_.fingerprint; }
    const ModelLayout& layout() const override { return parts_.layout; }
    const Checkpoint& checkpoint() const override { return *parts_.checkpoint; }
    std::size_t weight_bytes() const override;
    std::size_t step_bytes(std::int64_t rows, std::int64_t sample_rows) const override;

    std::int32_t rope_row(std::int64_t position, std::int64_t prompt_tokens) override { return rope_.row(position, prompt_tokens); }
    bool kv_depends_on_prompt_length(std::int64_t prompt_tokens) const override { return rope_.depends_on_prompt_length(prompt_tokens); }

    Matrix forward(const ForwardArgs& args, kernels::KvCache& cache) override;

private:
    // The layer that an op belongs to, and the adapters of its rows.
    struct Site {
        std::int64_t layer = 0;
        std::span<const AdapterRows> adapters;
    };
    // out = norm(in), with the base's norm or an adapter's own.
    struct NormCall {
        const Site& site;
        NormSite norm_site;
        const Norm& base;
        Matrix out;
        Matrix in;
    };
    // out (+)= weight · in + bias; then each group's adapter adds to its rows or replaces them.
    struct ProjectCall {
        const Site& site;
        Projection projection;
        const kernels::PackedWeight& weight;
        kernels::Vector bias;
        Matrix out;
        Matrix in;
        bool accumulate = false;
        const kernels::PackedWeight* next = nullptr;
    };
    Matrix attend(const Layer& layer, const Site& site, const kernels::StepInputs& step, const Matrix& residual, kernels::KvCache& cache);
    Matrix activate(const Layer& layer, const Site& site, const Matrix& residual);
    void normalize(const NormCall& call);
    void project(const ProjectCall& call);
    Matrix gather(const Activation& to, const Matrix& from, const kernels::StepInputs& step);
    std::span<const AdapterRows> adapters_of_samples(const ForwardArgs& args);
    const kernels::PackedWeight& head() const { return parts_.weights.head != nullptr ? *parts_.weights.head : *parts_.weights.tokens; }

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
    const Activation sampled_residual_;
    const Activation sampled_attended_;
    const Activation logits_;
    // Kept between steps for their capacity.
    std::vector<kernels::LoraGroup> lora_groups_;
    std::vector<kernels::BiasGroup> bias_groups_;
    std::vector<AdapterRows> sampled_groups_;
};

Matrix Transformer::forward(const ForwardArgs& args, kernels::KvCache& cache) {
    const kernels::StepInputs& step = args.step;
    const ModelWeights& weights = parts_.weights;
    CHECK(step.rows > 0 && step.rows <= rows_max_, "a plan has at most rows_max rows");
    CHECK(static_cast<std::int64_t>(step.sample_rows.size()) <= std::min(sample_rows_max_, step.rows),
          "a plan has at most sample_rows_max rows of logits");

    Matrix residual = residual_.view(step.rows);
    backend_.embed({.out = residual, .tokens = *weights.tokens, .positions = weights.positions.get(), .step = step});

    Site site{.layer = 0, .adapters = args.adapters};
    for (const Layer& layer : weights.layers) {
        const bool is_last = &layer == &weights.layers.back();
        Matrix attended = attend(layer, site, step, residual, cache);
        if (is_last) {
            // All keys and values are stored. From here on, only rows that sample are needed.
            if (step.sample_rows.empty()) return logits_.view(0);
            site.adapters = adapters_of_samples(args);
            attended = gather(sampled_attended_, attended, step);
            residual = gather(sampled_residual_, residual, step);
        }
        project({.site = site,
                 .projection = Projection::output,
                 .weight = *layer.output.weight,
                 .bias = layer.output.bias,
                 .out = residual,
                 .in = attended,
                 .accumulate = true,
                 .next = layer.gate_up.weight.get()});

        const Matrix activated = activate(layer, site, residual);
        project({.site = site,
                 .projection = Projection::down,
                 .weight = *layer.down.weight,
                 .bias = layer.down.bias,
                 .out = residual,
                 .in = activated,
                 .accumulate = true,
                 .next = is_last ? &head() : (&layer + 1)->qkv.weight.get()});
        ++site.layer;
    }

    site.layer = 0;
    const Matrix head_in = normed_.view(residual.rows, head().input_format());
    const Matrix logits = logits_.view(residual.rows);
    normalize({.site = site, .norm_site = NormSite::final, .base = weights.final_norm, .out = head_in, .in = residual});
    project({.site = site, .projection = Projection::head, .weight = head(), .bias = {}, .out = logits, .in = head_in});
    return logits;
}

// Norm, q|k|v, positions, KV cache, attention. Returns [rows, heads * head_dim], the input of the output projection.
Matrix Transformer::attend(const Layer& layer, const Site& site, const kernels::StepInputs& step, const Matrix& residual,
                           kernels::KvCache& cache) {
    const Matrix in = normed_.view(step.rows, layer.qkv.weight->input_format());
    const Matrix qkv = qkv_.view(step.rows);
    const Matrix attended = attended_.view(step.rows, layer.output.weight->input_format());
    normalize({.site = site, .norm_site = NormSite::attention, .base = layer.attention_norm, .out = in, .in = residual});
    project({.site = site,
             .projection = Projection::qkv,
             .weight = *layer.qkv.weight,
             .bias = layer.qkv.bias,
             .out = qkv,
             .in = in,
             .next = layer.output.weight.get()});
    backend_.rope_store({.qkv = qkv,
                         .heads = config().heads,
                         .kv_heads = config().kv_heads,
                         .head_dim = config().head_dim,
                         .rope_table = rope_.matrix(),
                         .q_norm = layer.q_norm,
                         .k_norm = layer.k_norm,
                         .norm_epsilon = static_cast<float>(config().norm_epsilon),
                         .cache = cache,
                         .layer = site.layer,
                         .step = step});
    backend_.attention({.out = attended,
                        .qkv = qkv,
                        .heads = config().heads,
                        .kv_heads = config().kv_heads,
                        .head_dim = config().head_dim,
                        .scale = layer.attention_scale,
                        .window = layer.window,
                        .cache = cache,
                        .layer = site.layer,
                        .step = step});
    return attended;
}

// Norm, gate|up, activation. Returns [rows, intermediate], the input of the down projection.
Matrix Transformer::activate(const Layer& layer, const Site& site, const Matrix& residual) {
    const Matrix in = normed_.view(residual.rows, layer.gate_up.weight->input_format());
    const Matrix gate_up = gate_up_.view(residual.rows);
    const Matrix activated = activated_.view(residual.rows, layer.down.weight->input_format());
    const Linear& linear = layer.gate_up;
    normalize({.site = site, .norm_site = NormSite::mlp, .base = layer.mlp_norm, .out = in, .in = residual});
    // Of an adapter's changes, only low-rank updates can be applied between a matmul and the activation of its outputs.
    lora_groups_.clear();
    bool is_low_rank = true;
    for (const AdapterRows& group : site.adapters) {
        const AdapterProjection* change = group.adapter->at(site.layer, Projection::gate_up);
        if (change == nullptr) continue;
        is_low_rank = is_low_rank && !change->whole && change->parts.empty() && change->bias.empty();
        if (change->lora != nullptr) lora_groups_.push_back({group.row_begin, group.row_count, change->lora.get()});
    }
    if (!is_low_rank) {
        project({.site = site,
                 .projection = Projection::gate_up,
                 .weight = *linear.weight,
                 .bias = linear.bias,
                 .out = gate_up,
                 .in = in,
                 .next = layer.down.weight.get()});
        backend_.activation({.kind = config().activation, .gated = config().gated, .out = activated, .in = gate_up});
    } else {
        backend_.activated_matmul({.kind = config().activation,
                                   .gated = config().gated,
                                   .out = activated,
                                   .sums = gate_up,
                                   .in = in,
                                   .weight = *linear.weight,
                                   .bias = linear.bias,
                                   .groups = lora_groups_,
                                   .next = layer.down.weight.get()});
    }
    return activated;
}

// The rows that sample, packed.
Matrix Transformer::gather(const Activation& to, const Matrix& from, const kernels::StepInputs& step) {
    const Matrix out = to.view(static_cast<std::int64_t>(step.sample_rows.size()), from.format);
    backend_.gather_rows({.out = out, .in = from, .step = step});
    return out;
}

// The groups of adapters in terms of the gathered rows.
std::span<const AdapterRows> Transformer::adapters_of_samples(const ForwardArgs& args) {
    const auto samples = args.step.sample_rows;
    sampled_groups_.clear();
    for (const AdapterRows& group : args.adapters) {
        const auto begin = std::lower_bound(samples.begin(), samples.end(), group.row_begin);
        const auto end = std::lower_bound(begin, samples.end(), group.row_begin + group.row_count);
        if (begin != end) sampled_groups_.push_back({begin - samples.begin(), end - begin, group.adapter});
    }
    return sampled_groups_;
}

void Transformer::normalize(const NormCall& call) {
    const auto changed = [&](const Adapter& adapter) { return adapter.norm_at(call.site.layer, call.norm_site); };
    for_changed_rows(call.site.adapters, call.in.rows, changed, [&](std::int64_t begin, std::int64_t count, const Norm* change) {
        const Norm& norm = change != nullptr ? *change : call.base;
        backend_.norm({.kind = config().norm,
                       .out = call.out.slice_rows(begin, count),
                       .in = call.in.slice_rows(begin, count),
                       .weight = norm.weight,
                       .bias = norm.bias,
                       .epsilon = static_cast<float>(config().norm_epsilon)});
    });
}

void Transformer::project(const ProjectCall& call) {
    const auto replaced = [&](const Adapter& adapter) -> const ReplacedLinear* {
        const AdapterProjection* change = adapter.at(call.site.layer, call.projection);
        return change != nullptr && change->whole ? &*change->whole : nullptr;
    };
    for_changed_rows(call.site.adapters, call.out.rows, replaced,
                     [&](std::int64_t begin, std::int64_t count, const ReplacedLinear* change) {
                         backend_.matmul({.out = call.out.slice_rows(begin, count),
                                          .in = call.in.slice_rows(begin, count),
                                          .weight = change != nullptr ? *change->weight : call.weight,
                                          .bias = change != nullptr ? change->bias : call.bias,
                                          .accumulate = call.accumulate,
                                          .next = call.next});
                     });

    lora_groups_.clear();
    bias_groups_.clear();
    for (const AdapterRows& group : call.site.adapters) {
        const AdapterProjection* change = group.adapter->at(call.site.layer, call.projection);
        if (change == nullptr) continue;
        for (const ReplacedLinear& part : change->parts) {
            const Matrix rows = call.out.slice_rows(group.row_begin, group.row_count);
            backend_.matmul({.out = rows.slice_columns(part.out_begin, part.weight->out_features()),
                             .in = call.in.slice_rows(group.row_begin, group.row_count),
                             .weight = *part.weight,
                             .bias = part.bias});
        }
        if (change->lora != nullptr) lora_groups_.push_back({group.row_begin, group.row_count, change->lora.get()});
        if (!change->bias.empty()) bias_groups_.push_back({group.row_begin, group.row_count, change->bias});
    }
    if (!lora_groups_.empty()) backend_.lora({.out = call.out, .in = call.in, .groups = lora_groups_});
    if (!bias_groups_.empty()) backend_.group_bias({.out = call.out, .groups = bias_groups_});
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

std::size_t Transformer::step_bytes(std::int64_t rows, std::int64_t sample_rows) const {
    if (rows == 0) return 0;
    const ModelWeights& weights = parts_.weights;
    const auto rows_of = [&](std::size_t table_bytes, std::int64_t table_rows) {
        return table_bytes * static_cast<std::size_t>(std::min(rows, table_rows)) / static_cast<std::size_t>(table_rows);
    };
    std::size_t total = rows_of(weights.tokens->bytes(), weights.tokens->out_features());
    if (weights.positions != nullptr) total += rows_of(weights.positions->bytes(), weights.positions->out_features());
    if (rope_.bytes() > 0) total += rows_of(rope_.bytes(), rope_.matrix().rows);
    for (const Layer& layer : weights.layers) {
        total += layer.qkv.weight->bytes();
        // As in forward(): after the last layer's attention, only rows that sample go on.
        if (&layer == &weights.layers.back() && sample_rows == 0) return total;
        total += layer.output.weight->bytes() + layer.gate_up.weight->bytes() + layer.down.weight->bytes();
    }
    return total + head().bytes();
}

}  // namespace

std::size_t Model::step_bytes(std::int64_t, std::int64_t) const { CHECK(false, "only a loaded model has weights to read"); }

std::unique_ptr<Model> make_model(ModelParts parts, kernels::Backend& backend, std::int64_t rows_max, std::int64_t sample_rows_max) {
    return std::make_unique<Transformer>(std::move(parts), backend, rows_max, sample_rows_max);
}

}  // namespace lorry::engine
