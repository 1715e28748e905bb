// The transformer as a list of ops: one forward pass for all families over kernels::Backend. What a family lacks (a gate, a bias, rope) is
// an empty view here. Each projection and norm looks up what the adapters change in it. Built by model_load.cpp.
#include "engine/model/model.h"

#include <algorithm>
#include <cmath>

#include "engine/model/adapted_ops.h"
#include "engine/model/adapter.h"
#include "engine/model/disentangled_bias.h"
#include "engine/model/expert_mixture.h"
#include "engine/model/model_weights.h"
#include "engine/model/readout.h"
#include "engine/model/rope.h"

namespace lorry::engine {
namespace {

using kernels::Matrix;

// The outputs of gate or up of the widest MLP that runs for all tokens.
std::int64_t widest_mlp(const ModelConfig& config) {
    std::int64_t widest = 0;
    for (std::int64_t layer = 0; layer < config.layers; ++layer) widest = std::max(widest, config.intermediate_of(layer));
    return widest;
}

class Transformer final : public Model {
public:
    Transformer(ModelParts parts, kernels::Backend& backend, std::int64_t rows_max, std::int64_t sample_rows_max)
        : parts_(std::move(parts)),
          backend_(backend),
          ops_(parts_.config, backend),
          rope_(config(), backend, rows_max),
          rows_max_(rows_max),
          sample_rows_max_(sample_rows_max),
          pools_(can_pool(backend)),
          residual_(backend, rows_max, config().hidden),
          embedded_(backend, config().embedding_width() == config().hidden ? 0 : rows_max, config().embedding_width()),
          normed_(backend, rows_max, std::max(config().hidden, config().embedding_width())),
          qkv_(backend, rows_max, out_features_of(config(), Projection::qkv)),
          attended_(backend, rows_max, config().heads * config().head_dim),
          gate_up_(backend, rows_max, (config().gated ? 2 : 1) * widest_mlp(config())),
          activated_(backend, rows_max, widest_mlp(config())),
          shared_(backend, config().experts && config().experts->shared_intermediate > 0 ? rows_max : 0, config().hidden),
          added_(backend, adds_directly() ? 0 : rows_max, config().hidden),
          sampled_residual_(backend, pools_ ? rows_max : sample_rows_max, config().hidden),
          sampled_attended_(backend, pools_ ? rows_max : sample_rows_max, config().heads * config().head_dim),
          logits_(std::in_place, backend, config().has_vocabulary_head() ? sample_rows_max : 0, config().vocabulary),
          logits_columns_(config().vocabulary),
          convolved_(backend, config().convolution ? rows_max : 0, config().hidden),
          unfolded_(backend, config().convolution ? rows_max : 0,
                    config().convolution ? config().convolution->width * config().hidden : 0) {
        if (config().window_rope) {
            ModelConfig of_windows = config();
            of_windows.rope = *config().window_rope;
            window_rope_.emplace(of_windows, backend, rows_max);
        }
        if (pools_) readout_.emplace(parts_, backend, rows_max);
        if (config().experts) {
            CHECK(adds_directly() && !config().is_parallel, "experts add to the residual without norm or scale");
            mixture_.emplace(config(), ops_, backend, rows_max);
        }
        if (config().disentangled) disentangled_.emplace(parts_, ops_, backend, rows_max);
    }

    const ModelConfig& config() const override { return parts_.config; }
    kernels::KvShape kv_shape() const override { return kv_shape_of(config()); }
    const std::string& fingerprint() const override { return parts_.fingerprint; }
    std::span<const std::string> unused_tensors() const override { return parts_.unused_tensors; }
    const ModelLayout& layout() const override { return parts_.layout; }
    const Checkpoint& checkpoint() const override { return *parts_.checkpoint; }
    std::size_t weight_bytes() const override;
    std::size_t step_bytes(std::int64_t rows, std::int64_t sample_rows) const override;

    std::optional<std::int64_t> rope_length(std::int64_t prompt_tokens, std::int64_t tokens_max) const override {
        return rope_length_of(config().rope, prompt_tokens, tokens_max);
    }
    std::int32_t rope_row(std::int64_t position, std::optional<std::int64_t> rope_length) override {
        if (window_rope_) window_rope_->row(position, rope_length);  // which has the same rows: neither depends on the length
        return rope_.row(position, rope_length);
    }

    bool pools() const override { return pools_; }
    std::shared_ptr<const Labels> labels_for(PoolingTask task, const Adapter* adapter) const override {
        const auto head = pools_ ? choose_head(parts_, task, adapter) : std::nullopt;
        return head ? head->labels : nullptr;
    }

    Matrix forward(const ForwardArgs& args, kernels::KvCache& cache) override;

private:
    Matrix attend(const Layer& layer, const Site& site, const kernels::StepInputs& step, const Matrix& residual, kernels::KvCache& cache);
    void convolve(const kernels::StepInputs& step, const Matrix& embedded);
    void add_convolution(const Site& site, const Matrix& residual);
    Matrix activate(const Layer& layer, const Site& site, const Matrix& residual);
    void normalize_for_mlp(const Layer& layer, const Site& site, const Matrix& out, const Matrix& residual);
    void add_experts(const Layer& layer, const Site& site, const Matrix& residual);
    // What attention or the MLP adds to the residual.
    struct Addition {
        const Site& site;
        Projection projection;
        const Linear& linear;
        NormSite norm_site;
        const Norm& norm;  // of the projection's output; without a weight: none
        Matrix residual;
        Matrix in;
        const kernels::PackedWeight* next = nullptr;
    };
    void add(const Addition& addition);
    std::size_t mlp_bytes(const Layer& layer, std::int64_t rows) const;
    bool adds_directly() const { return config().names->attention_out_norm == nullptr && config().residual_scale == 1.0; }
    void normalize_whole(const Layer& layer, const Matrix& qkv);
    void multiply(const Matrix& rows, double scale);
    Matrix gather(const Activation& to, const Matrix& from, const kernels::StepInputs& step);
    Matrix embed(const kernels::StepInputs& step, const Site& site);
    Matrix read_out(const ForwardArgs& args, const Site& site, const Matrix& residual);
    void score_vocabulary(const Site& site, const Matrix& residual, const Matrix& logits);
    Matrix logits(std::int64_t rows, std::span<const AdapterRows> adapters);
    std::span<const AdapterRows> adapters_of_samples(const ForwardArgs& args);
    // The groups in terms of rows [begin, begin + count). Valid until the next call.
    std::span<const AdapterRows> adapters_within(std::span<const AdapterRows> groups, std::int64_t begin, std::int64_t count);
    Matrix distance_bias() const {
        const kernels::Vector& bias = parts_.weights.distance_bias;
        if (bias.empty()) return {};
        return {.data = const_cast<float*>(bias.data),
                .format = kernels::Format::float32,
                .rows = config().heads,
                .columns = 2 * config().max_positions - 1,
                .stride = parts_.weights.distance_stride};
    }
    const kernels::PackedWeight* vocabulary_head() const { return config().has_vocabulary_head() ? &head() : nullptr; }
    const kernels::PackedWeight& head() const { return parts_.weights.head != nullptr ? *parts_.weights.head : *parts_.weights.tokens; }

    const ModelParts parts_;
    kernels::Backend& backend_;
    AdaptedOps ops_;
    RopeTable rope_;
    std::optional<RopeTable> window_rope_;  // of layers with a window, if it is another one
    const std::int64_t rows_max_;
    const std::int64_t sample_rows_max_;
    const bool pools_;  // the device has kernels for encoders and pooling
    const Activation residual_;
    const Activation embedded_;  // before it is projected; without rows where it is not
    const Activation normed_;
    const Activation qkv_;
    const Activation attended_;
    const Activation gate_up_;
    const Activation activated_;
    const Activation shared_;  // the output of experts for all tokens; without rows where there are none
    const Activation added_;   // to the residual, before its norm and scale; without rows where there are none
    const Activation sampled_residual_;
    const Activation sampled_attended_;
    std::optional<Activation> logits_;              // not nullopt
    std::int64_t logits_columns_;                   // that it is allocated for
    const Activation convolved_;                    // the sums of a convolution; without rows where there is none
    const Activation unfolded_;                     // its inputs
    std::optional<ExpertMixture> mixture_;          // for models with experts
    std::optional<DisentangledBias> disentangled_;  // for models with disentangled attention
    std::optional<Readout> readout_;                // if pools_
    // Kept between steps for their capacity.
    std::vector<AdapterRows> sampled_groups_;
    std::vector<AdapterRows> run_groups_;
};

Matrix Transformer::forward(const ForwardArgs& args, kernels::KvCache& cache) {
    const kernels::StepInputs& step = args.step;
    const ModelWeights& weights = parts_.weights;
    CHECK(step.rows > 0 && step.rows <= rows_max_, "a plan has at most rows_max rows");
    Site site{.layer = 0, .adapters = args.adapters};
    Matrix residual = embed(step, site);
    for (const Layer& layer : weights.layers) {
        const bool is_last = &layer == &weights.layers.back();
        Matrix attended = attend(layer, site, step, residual, cache);
        const bool is_convolved = site.layer == 0 && config().convolution;
        if (is_convolved) convolve(step, residual);  // which are the embeddings until the layer's output is added
        if (is_last) {
            // All keys and values are stored. From here on, only rows that sample or are pooled are needed.
            if (step.sample_rows.empty()) return logits_->view_of(0, config().vocabulary);
            const bool are_all = !args.texts.empty() && std::ssize(step.sample_rows) == step.rows;
            if (!are_all) {
                site.adapters = adapters_of_samples(args);
                attended = gather(sampled_attended_, attended, step);
                residual = gather(sampled_residual_, residual, step);
            }
        }
        Matrix activated;
        if (config().is_parallel) activated = activate(layer, site, residual);
        add({.site = site,
             .projection = Projection::output,
             .linear = layer.output,
             .norm_site = NormSite::attention_out,
             .norm = layer.attention_out_norm,
             .residual = residual,
             .in = attended,
             .next = layer.mlp.gate_up.weight.get()});

        if (!layer.experts.empty()) {
            add_experts(layer, site, residual);
            ++site.layer;
            continue;
        }
        if (!config().is_parallel) activated = activate(layer, site, residual);
        add({.site = site,
             .projection = Projection::down,
             .linear = layer.mlp.down,
             .norm_site = NormSite::mlp_out,
             .norm = layer.mlp_out_norm,
             .residual = residual,
             .in = activated,
             .next = is_last ? vocabulary_head() : (&layer + 1)->qkv.weight.get()});
        if (is_convolved) add_convolution(site, residual);
        ++site.layer;
    }
    site.layer = 0;
    return read_out(args, site, residual);
}

// Where what is added has no norm and no scale, the projection adds it.
void Transformer::add(const Addition& addition) {
    const bool is_direct = adds_directly();
    const Matrix added = is_direct ? addition.residual : added_.view(addition.residual.rows);
    ops_.project({.site = addition.site,
                  .projection = addition.projection,
                  .weight = *addition.linear.weight,
                  .bias = addition.linear.bias,
                  .out = added,
                  .in = addition.in,
                  .accumulate = is_direct,
                  .next = addition.next});
    if (is_direct) return;
    if (!addition.norm.weight.empty())
        ops_.normalize({.site = addition.site, .norm_site = addition.norm_site, .base = addition.norm, .out = added, .in = added});
    backend_.scale({.out = addition.residual, .in = added, .scale = static_cast<float>(config().residual_scale), .accumulate = true});
}

void Transformer::multiply(const Matrix& rows, double scale) {
    if (scale != 1.0) backend_.scale({.out = rows, .in = rows, .scale = static_cast<float>(scale)});
}

// Tokens, positions and types, and what makes them as wide as the hidden states. Returns [rows, hidden], the first layer's input.
Matrix Transformer::embed(const kernels::StepInputs& step, const Site& site) {
    const ModelWeights& weights = parts_.weights;
    const Matrix residual = residual_.view(step.rows);
    const kernels::PackedWeight* const projection = weights.embedding_projection.weight.get();
    const Matrix embedded = projection == nullptr ? residual : embedded_.view(step.rows);
    ops_.embed({.site = site, .weights = weights, .step = step, .out = embedded, .scratch = normed_});
    multiply(embedded, config().embedding_scale);
    if (projection == nullptr) return residual;
    const Matrix in = normed_.view_of(step.rows, embedded.columns, projection->input_format());
    ops_.normalize({.site = site, .norm_site = NormSite::embedding, .base = weights.embedding_norm, .out = in, .in = embedded});
    ops_.project({.site = site,
                  .projection = Projection::embedding,
                  .weight = *projection,
                  .bias = weights.embedding_projection.bias,
                  .out = residual,
                  .in = in});
    return residual;
}

// Logits of the rows that sample, and what is read from the texts: each a run of rows within those of the step.
Matrix Transformer::read_out(const ForwardArgs& args, const Site& site, const Matrix& residual) {
    std::int64_t pooled = 0;
    for (const PooledText& text : args.texts) pooled += text.row_count;
    const std::int64_t sampled = residual.rows - pooled;
    CHECK(sampled <= sample_rows_max_, "a plan has at most sample_rows_max rows of logits");
    const Matrix logits = this->logits(sampled, args.adapters);
    if (pooled == 0) {
        score_vocabulary(site, residual, logits);
        return logits;
    }
    CHECK(pools_, "a GPU takes no texts to pool");
    readout_->begin(args.texts);
    std::int64_t row = 0;     // up to here all is read
    std::int64_t scored = 0;  // rows of logits so far
    const auto score_until = [&](std::int64_t end) {
        if (row == end) return;
        const std::int64_t count = end - row;
        score_vocabulary({.layer = 0, .adapters = adapters_within(site.adapters, row, count)}, residual.slice_rows(row, count),
                         logits.slice_rows(scored, count));
        scored += count;
        row = end;
    };
    for (auto texts = args.texts; !texts.empty();) {
        score_until(texts.front().row_begin);
        std::size_t adjacent = 0;
        std::int64_t end = row;
        for (; adjacent < texts.size() && texts[adjacent].row_begin == end; ++adjacent) end += texts[adjacent].row_count;
        const Matrix hidden = readout_->hidden(end - row);
        ops_.normalize({.site = {.layer = 0, .adapters = adapters_within(site.adapters, row, end - row)},
                        .norm_site = NormSite::final,
                        .base = parts_.weights.final_norm,
                        .out = hidden,
                        .in = residual.slice_rows(row, end - row)});
        readout_->run(hidden, texts.first(adjacent));
        texts = texts.subspan(adjacent);
        row = end;
    }
    score_until(residual.rows);
    return logits;
}

// As wide as the largest vocabulary. Memory for more tokens than the base has is allocated when an adapter first needs it: only a CPU runs
// such adapters.
Matrix Transformer::logits(std::int64_t rows, std::span<const AdapterRows> adapters) {
    std::int64_t columns = config().vocabulary;
    for (const AdapterRows& group : adapters) columns = std::max(columns, group.adapter->info().vocabulary.value_or(0));
    if (config().has_vocabulary_head() && columns > logits_columns_) {
        logits_.emplace(backend_, sample_rows_max_, columns);
        logits_columns_ = columns;
    }
    return logits_->view_of(rows, std::min(columns, logits_columns_));
}

// Final norm and the vocabulary's head, before which a masked language model has a hidden layer; then the scale and the cap of logits.
void Transformer::score_vocabulary(const Site& site, const Matrix& residual, const Matrix& logits) {
    const ModelWeights& weights = parts_.weights;
    const bool has_hidden_layer = weights.before_head.linear.weight != nullptr;
    const Matrix head_in = normed_.view_of(residual.rows, head().in_features(), head().input_format());
    const Matrix normed = has_hidden_layer ? readout_->hidden(residual.rows) : head_in;
    ops_.normalize({.site = site, .norm_site = NormSite::final, .base = weights.final_norm, .out = normed, .in = residual});
    if (has_hidden_layer) readout_->run_hidden_layer(weights.before_head, normed, head_in);
    ops_.project({.site = site, .projection = Projection::head, .weight = head(), .bias = weights.head_bias, .out = logits, .in = head_in});
    if (config().logit_cap) {
        backend_.scale({.out = logits,
                        .in = logits,
                        .scale = static_cast<float>(config().logit_scale),
                        .cap = static_cast<float>(*config().logit_cap)});
    } else {
        multiply(logits, config().logit_scale);
    }
}

// Queries and keys, where one norm covers all heads.
void Transformer::normalize_whole(const Layer& layer, const Matrix& qkv) {
    const auto normalize = [&](std::int64_t begin, const kernels::Vector& weight) {
        const Matrix part = qkv.slice_columns(begin, weight.size);
        backend_.norm({.kind = kernels::NormKind::rms,
                       .out = part,
                       .in = part,
                       .weight = weight,
                       .bias = {},
                       .epsilon = static_cast<float>(config().norm_epsilon)});
    };
    normalize(0, layer.q_norm);
    normalize(layer.q_norm.size, layer.k_norm);
}

// Norm, q|k|v, positions, KV cache, attention. Returns [rows, heads * head_dim], the input of the output projection.
Matrix Transformer::attend(const Layer& layer, const Site& site, const kernels::StepInputs& step, const Matrix& residual,
                           kernels::KvCache& cache) {
    const Matrix in = normed_.view_of(step.rows, config().hidden, layer.qkv.weight->input_format());
    const Matrix qkv = qkv_.view(step.rows);
    const Matrix attended = attended_.view(step.rows, layer.output.weight->input_format());
    ops_.normalize({.site = site, .norm_site = NormSite::attention, .base = layer.attention_norm, .out = in, .in = residual});
    ops_.project({.site = site,
                  .projection = Projection::qkv,
                  .weight = *layer.qkv.weight,
                  .bias = layer.qkv.bias,
                  .out = qkv,
                  .in = in,
                  .next = layer.output.weight.get()});
    const std::int64_t cache_layer = config().is_encoder ? 0 : site.layer;
    const RopeTable& rope = layer.window && window_rope_ ? *window_rope_ : rope_;
    const bool is_whole = config().qk_norm == QkNorm::whole;
    if (is_whole) normalize_whole(layer, qkv);
    backend_.rope_store({.qkv = qkv,
                         .heads = config().heads,
                         .kv_heads = config().kv_heads,
                         .head_dim = config().head_dim,
                         .rope_table = layer.rotates ? rope.matrix() : Matrix{},
                         .q_norm = is_whole ? kernels::Vector{} : layer.q_norm,
                         .k_norm = is_whole ? kernels::Vector{} : layer.k_norm,
                         .norm_epsilon = static_cast<float>(config().norm_epsilon),
                         .cache = cache,
                         .layer = cache_layer,
                         .step = step});
    backend_.attention({.out = attended,
                        .qkv = qkv,
                        .heads = config().heads,
                        .kv_heads = config().kv_heads,
                        .head_dim = config().head_dim,
                        .scale = layer.attention_scale,
                        .mask = config().is_encoder ? kernels::AttentionMask::full : kernels::AttentionMask::causal,
                        .cap = config().attention_cap ? std::optional(static_cast<float>(*config().attention_cap)) : std::nullopt,
                        .window = layer.window,
                        .sinks = layer.sinks,
                        .bias_by_distance = distance_bias(),
                        .bias_by_token = disentangled_ ? disentangled_->run(layer, site, step, qkv) : Matrix{},
                        .cache = cache,
                        .layer = cache_layer,
                        .step = step});
    return attended;
}

// Norm, router, the experts that it chooses and the one for all tokens.
void Transformer::add_experts(const Layer& layer, const Site& site, const Matrix& residual) {
    const Matrix scored = mixture_->scored(residual.rows);
    normalize_for_mlp(layer, site, scored, residual);
    mixture_->score(layer, site, scored);
    Matrix shared;
    if (layer.shared_gate.weight != nullptr) {
        const Matrix activated = activate(layer, site, residual);
        shared = shared_.view(residual.rows);
        ops_.project({.site = site,
                      .projection = Projection::down,
                      .weight = *layer.mlp.down.weight,
                      .bias = layer.mlp.down.bias,
                      .out = shared,
                      .in = activated});
    }
    const Matrix in = normed_.view_of(residual.rows, config().hidden, layer.experts.front().gate_up.weight->input_format());
    normalize_for_mlp(layer, site, in, residual);
    mixture_->add(layer, site, {.in = in, .shared = shared, .residual = residual});
}

// The sums of the convolution over the embeddings.
void Transformer::convolve(const kernels::StepInputs& step, const Matrix& embedded) {
    const Linear& linear = parts_.weights.convolution;
    const Matrix in = unfolded_.view(step.rows, linear.weight->input_format());
    backend_.unfold({.width = config().convolution->width, .out = in, .in = embedded, .step = step});
    backend_.matmul({.out = convolved_.view(step.rows), .in = in, .weight = *linear.weight, .bias = linear.bias});
}

// Adds the activated sums to the first layer's output; the second layer's norm follows.
void Transformer::add_convolution(const Site& site, const Matrix& residual) {
    ops_.normalize(
        {.site = site, .norm_site = NormSite::convolution, .base = parts_.weights.convolution_norm, .out = residual, .in = residual});
    backend_.activation(
        {.kind = config().convolution->activation, .out = residual, .in = convolved_.view(residual.rows), .accumulate = true});
}

// Norm, gate|up, activation. Returns [rows, intermediate], the input of the down projection.
Matrix Transformer::activate(const Layer& layer, const Site& site, const Matrix& residual) {
    const Mlp& mlp = layer.mlp;
    const Matrix in = normed_.view_of(residual.rows, config().hidden, mlp.gate_up.weight->input_format());
    const Matrix activated = activated_.view_of(residual.rows, mlp.down.weight->in_features(), mlp.down.weight->input_format());
    normalize_for_mlp(layer, site, in, residual);
    ops_.activate({.site = site,
                   .mlp = mlp,
                   .out = activated,
                   .sums = gate_up_.view_of(residual.rows, mlp.gate_up.weight->out_features()),
                   .in = in});
    return activated;
}

void Transformer::normalize_for_mlp(const Layer& layer, const Site& site, const Matrix& out, const Matrix& residual) {
    ops_.normalize({.site = site,
                    .norm_site = config().shares_norm ? NormSite::attention : NormSite::mlp,
                    .base = config().shares_norm ? layer.attention_norm : layer.mlp_norm,
                    .out = out,
                    .in = residual});
}

// The rows that sample, packed.
Matrix Transformer::gather(const Activation& to, const Matrix& from, const kernels::StepInputs& step) {
    const Matrix out = to.view(static_cast<std::int64_t>(step.sample_rows.size()), from.format);
    backend_.gather_rows({.out = out, .in = from, .step = step});
    return out;
}

// The groups of adapters in terms of the gathered rows.
std::span<const AdapterRows> Transformer::adapters_of_samples(const ForwardArgs& args) {
    sampled_groups_.clear();
    add_groups_among(args.adapters, args.step.sample_rows, sampled_groups_);
    return sampled_groups_;
}

std::span<const AdapterRows> Transformer::adapters_within(std::span<const AdapterRows> groups, std::int64_t begin, std::int64_t count) {
    run_groups_.clear();
    for (const AdapterRows& group : groups) {
        const std::int64_t first = std::max(group.row_begin, begin);
        const std::int64_t end = std::min(group.row_begin + group.row_count, begin + count);
        if (first < end) run_groups_.push_back({first - begin, end - first, group.adapter});
    }
    return run_groups_;
}

std::size_t Transformer::weight_bytes() const {
    const std::size_t tables = rope_.bytes() + (window_rope_ ? window_rope_->bytes() : 0);
    return parts_.weights.matrix_bytes + parts_.weights.vectors.bytes() + tables;
}

// Of experts, those that so many rows choose on average if each expert is as likely as the others.
std::size_t Transformer::mlp_bytes(const Layer& layer, std::int64_t rows) const {
    const auto bytes_of = [](const Linear& linear) { return linear.weight == nullptr ? 0 : linear.weight->bytes(); };
    const std::size_t all = bytes_of(layer.mlp.gate_up) + bytes_of(layer.mlp.down) + bytes_of(layer.router) + bytes_of(layer.shared_gate);
    if (layer.experts.empty()) return all;
    const ExpertsConfig& experts = *config().experts;
    const double missed = std::pow(1.0 - static_cast<double>(experts.chosen) / static_cast<double>(experts.count), rows);
    const Mlp& one = layer.experts.front();
    const auto expert_bytes = static_cast<double>(bytes_of(one.gate_up) + bytes_of(one.down));
    return all + static_cast<std::size_t>((1.0 - missed) * static_cast<double>(experts.count) * expert_bytes);
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
        const std::int64_t rows_on = &layer == &weights.layers.back() ? sample_rows : rows;
        total += layer.output.weight->bytes() + mlp_bytes(layer, rows_on);
    }
    return total + (sample_rows > 0 && config().has_vocabulary_head() ? head().bytes() : 0);
}

}  // namespace

std::shared_ptr<const Labels> Model::labels_for(PoolingTask, const Adapter*) const { return nullptr; }

std::size_t Model::step_bytes(std::int64_t, std::int64_t) const { CHECK(false, "only a loaded model has weights to read"); }

std::unique_ptr<Model> make_model(ModelParts parts, kernels::Backend& backend, std::int64_t rows_max, std::int64_t sample_rows_max) {
    return std::make_unique<Transformer>(std::move(parts), backend, rows_max, sample_rows_max);
}

}  // namespace lorry::engine
