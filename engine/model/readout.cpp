// Pools rows and runs heads: texts of one task and adapter together.
#include "engine/model/readout.h"

#include <algorithm>
#include <cmath>

#include "engine/model/adapter.h"

namespace lorry::engine {
namespace {

using kernels::Matrix;

// The largest width that hidden layers of heads have.
std::int64_t widest(const ModelConfig& config) {
    std::int64_t width = std::max(config.hidden, config.embedding_width());
    if (config.embedder) {
        for (const DenseConfig& dense : config.embedder->dense) width = std::max(width, dense.out_features);
    }
    return width;
}

// What a mode multiplies the pooled rows of a text by.
float factor_of(PoolingMode mode, std::int64_t rows) {
    const auto count = static_cast<float>(rows);
    switch (mode) {
        case PoolingMode::cls:
        case PoolingMode::last:
        case PoolingMode::max: return 1.0F;
        case PoolingMode::mean: return 1.0F / count;
        case PoolingMode::mean_sqrt_len: return 1.0F / std::sqrt(count);
        case PoolingMode::weighted_mean: return 2.0F / (count * (count + 1.0F));
    }
    CHECK(false, "every mode has a factor");
}

kernels::PoolKind kind_of(PoolingMode mode) {
    if (mode == PoolingMode::max) return kernels::PoolKind::max;
    return mode == PoolingMode::weighted_mean ? kernels::PoolKind::weighted_sum : kernels::PoolKind::sum;
}

PoolingMode mode_of(PoolingTask task, const ModelConfig& config) {
    if (task == PoolingTask::classify) return config.classifier_pooling;
    CHECK(task == PoolingTask::embed && config.embedder, "only embeddings and classes are pooled");
    return config.embedder->pooling;
}

}  // namespace

PooledRows rows_of(PoolingTask task, const ModelConfig& config) {
    return task == PoolingTask::token_classify ? PooledRows::all : rows_of(mode_of(task, config));
}

bool reads_whole_text(PoolingTask task, const ModelConfig& config) {
    return config.is_encoder || task == PoolingTask::fill_mask || rows_of(task, config) != PooledRows::last;
}

std::optional<ChosenHead> choose_head(const ModelParts& parts, PoolingTask task, const Adapter* adapter) {
    const Classifier& base = parts.weights.classifier;
    const Classifier* const own = adapter != nullptr ? adapter->classifier() : nullptr;
    const Classifier& head = own != nullptr ? *own : base;
    if (head.labels == nullptr || head.task != task) return std::nullopt;
    // The base's rows of the vocabulary's head are not those of an adapter that changes it.
    const bool changes_scores =
        parts.config.token_score && own == nullptr && adapter != nullptr && adapter->at(0, Projection::head) != nullptr;
    if (changes_scores) return std::nullopt;
    const HiddenLayer& hidden = head.hidden.linear.weight != nullptr ? head.hidden : base.hidden;
    const bool has_hidden = !parts.layout.head_for(task)->dense.empty();
    if (has_hidden && hidden.linear.weight == nullptr) return std::nullopt;
    return ChosenHead{.hidden = has_hidden ? &hidden : nullptr, .output = &head.output, .labels = head.labels};
}

Readout::Readout(const ModelParts& parts, kernels::Backend& backend, std::int64_t rows_max)
    : parts_(parts),
      backend_(backend),
      hidden_(backend, rows_max, parts.config.hidden),
      sums_(backend, rows_max, widest(parts.config)),
      activated_(backend, rows_max, widest(parts.config)),
      pooled_(backend, rows_max, parts.config.hidden),
      results_in_(backend, rows_max, widest(parts.config)) {}

void Readout::run_hidden_layer(const HiddenLayer& layer, const Matrix& in, const Matrix& out) const {
    const std::int64_t width = layer.linear.weight->out_features();
    const Matrix sums = layer.activation ? sums_.view_of(in.rows, width) : out;
    backend_.matmul({.out = sums, .in = in, .weight = *layer.linear.weight, .bias = layer.linear.bias});
    if (!layer.activation) return;
    const bool has_norm = !layer.norm.weight.empty();
    const Matrix activated = has_norm ? activated_.view_of(in.rows, width) : out;
    backend_.activation({.kind = *layer.activation, .gated = false, .out = activated, .in = sums});
    if (!has_norm) return;
    backend_.norm({.kind = parts_.config.norm,
                   .out = out,
                   .in = activated,
                   .weight = layer.norm.weight,
                   .bias = layer.norm.bias,
                   .epsilon = static_cast<float>(parts_.config.norm_epsilon)});
}

std::int64_t Readout::width_of(const PooledText& text) const {
    if (text.task == PoolingTask::embed) return parts_.config.embedder->dimensions;
    const auto head = choose_head(parts_, text.task, text.adapter);
    CHECK(head, "a request without a head was refused");
    return head->output->weight->out_features();
}

void Readout::begin(std::span<const PooledText> texts) {
    std::int64_t floats = 0;
    for (const PooledText& text : texts) floats += (text.task == PoolingTask::token_classify ? text.row_count : 1) * width_of(text);
    const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
    if (results_ == nullptr || results_->bytes() < bytes) results_ = backend_.allocate(bytes);
    results_taken_ = 0;
}

Matrix Readout::take_results(std::int64_t rows, std::int64_t columns) {
    float* const begin = static_cast<float*>(results_->data()) + results_taken_;
    results_taken_ += rows * columns;
    return {.data = begin, .format = kernels::Format::float32, .rows = rows, .columns = columns, .stride = columns};
}

void Readout::run(const Matrix& in, std::span<PooledText> texts) {
    const std::int64_t first = texts.front().row_begin;
    for (std::size_t begin = 0; begin < texts.size();) {
        std::size_t end = begin + 1;
        while (end < texts.size() && texts[end].task == texts[begin].task && texts[end].adapter == texts[begin].adapter) ++end;
        const std::int64_t row_begin = texts[begin].row_begin - first;
        const std::int64_t rows = texts[end - 1].row_begin + texts[end - 1].row_count - first - row_begin;
        run_group(in.slice_rows(row_begin, rows), texts.subspan(begin, end - begin));
        begin = end;
    }
}

void Readout::run_group(const Matrix& in, std::span<PooledText> texts) {
    const PoolingTask task = texts.front().task;
    const bool is_by_token = task == PoolingTask::token_classify;
    Matrix rows = is_by_token ? in : pool(in, texts, mode_of(task, parts_.config));
    if (task == PoolingTask::embed) {
        rows = embed(rows);
    } else {
        const auto head = choose_head(parts_, task, texts.front().adapter);
        CHECK(head, "a request without a head was refused");
        if (head->hidden != nullptr) {
            const Matrix hidden = results_in_.view_of(rows.rows, head->hidden->linear.weight->out_features());
            run_hidden_layer(*head->hidden, rows, hidden);
            rows = hidden;
        }
        const Matrix scores = take_results(rows.rows, head->output->weight->out_features());
        backend_.matmul({.out = scores, .in = rows, .weight = *head->output->weight, .bias = head->output->bias});
        rows = scores;
    }
    std::int64_t row = 0;
    for (PooledText& text : texts) {
        const std::int64_t count = is_by_token ? text.row_count : 1;
        text.out = rows.slice_rows(row, count);
        row += count;
    }
}

// The Dense modules, each into the memory that the one before it does not read; the last one's rows, or the pooled ones, are results.
Matrix Readout::embed(const Matrix& pooled) {
    const auto& dense = parts_.weights.dense;
    if (dense.empty()) return pooled;
    Matrix in = pooled;
    for (std::size_t i = 0; i + 1 < dense.size(); ++i) {
        const Activation& memory = i % 2 == 0 ? results_in_ : activated_;
        const Matrix out = memory.view_of(in.rows, dense[i].linear.weight->out_features());
        run_hidden_layer(dense[i], in, out);
        in = out;
    }
    const Matrix out = take_results(in.rows, dense.back().linear.weight->out_features());
    run_hidden_layer(dense.back(), in, out);
    return out;
}

// One row for each text. Embeddings that nothing follows are results.
Matrix Readout::pool(const Matrix& in, std::span<const PooledText> texts, PoolingMode mode) {
    const std::int64_t first = texts.front().row_begin;
    segments_.clear();
    factors_.clear();
    for (const PooledText& text : texts) {
        segments_.push_back({.row_begin = text.row_begin - first, .row_count = text.row_count});
        factors_.push_back(factor_of(mode, text.row_count));
    }
    const auto count = static_cast<std::int64_t>(texts.size());
    const bool is_result = texts.front().task == PoolingTask::embed && parts_.weights.dense.empty();
    const Matrix out = is_result ? take_results(count, in.columns) : pooled_.view(count);
    backend_.pool({.kind = kind_of(mode), .out = out, .in = in, .segments = segments_, .factors = factors_});
    return out;
}

}  // namespace lorry::engine
