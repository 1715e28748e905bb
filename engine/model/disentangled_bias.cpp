// Projects relative positions once for the base, and once per step and layer for each adapter that changes them.
#include "engine/model/disentangled_bias.h"

#include <algorithm>

#include "engine/model/relative_positions.h"

namespace lorry::engine {

using kernels::Matrix;

DisentangledBias::DisentangledBias(const ModelParts& parts, AdaptedOps& ops, kernels::Backend& backend, std::int64_t rows_max)
    : parts_(parts),
      ops_(ops),
      backend_(backend),
      position_of_distance_(positions_of_distances(*parts.config.disentangled, parts.config.max_positions)),
      embedded_(backend, rows(), config().hidden),
      projected_(backend, rows(), out_features_of(config(), projection())),
      bias_(take_memory(rows_max)) {
    const ModelWeights& weights = parts.weights;
    const Norm& norm = weights.relative_norm;
    backend.norm({.kind = norm.weight.empty() ? kernels::NormKind::none : config().norm,
                  .out = embedded_.view(rows(), linear_of(weights.layers.front()).weight->input_format()),
                  .in = {.data = const_cast<float*>(weights.relative_positions.data),
                         .format = kernels::Format::float32,
                         .rows = rows(),
                         .columns = config().hidden,
                         .stride = config().hidden},
                  .weight = norm.weight,
                  .bias = norm.bias,
                  .epsilon = static_cast<float>(config().norm_epsilon)});
    Site site;
    for (const Layer& layer : weights.layers) {
        const ProjectCall call = call_of(layer, site, 0, rows());
        ops_.project(call);
        of_base_.emplace_back(backend, rows(), columns());
        copy(call.out, of_base_.back().view(rows()));
        ++site.layer;
    }
}

ProjectCall DisentangledBias::call_of(const Layer& layer, const Site& site, std::int64_t begin, std::int64_t count) const {
    const Linear& linear = linear_of(layer);
    return {.site = site,
            .projection = projection(),
            .weight = *linear.weight,
            .bias = linear.bias,
            .out = projected_.view(rows()).slice_rows(begin, count),
            .in = embedded_.view(rows(), linear.weight->input_format()).slice_rows(begin, count)};
}

// The queries and keys among the columns.
void DisentangledBias::copy(const Matrix& from, const Matrix& to) {
    backend_.norm({.kind = kernels::NormKind::none, .out = to.slice_columns(0, columns()), .in = from.slice_columns(0, columns())});
}

Matrix DisentangledBias::positions_of(const Layer& layer, const Site& site, const Adapter& adapter, std::int64_t begin,
                                      std::int64_t count) {
    const AdapterRows group{0, count, &adapter};
    const Site own{.layer = site.layer, .adapters = {&group, 1}};
    const ProjectCall call = call_of(layer, own, begin, count);
    if (adapter.at(site.layer, projection())->whole) {
        ops_.project(call);
    } else {
        copy(of_base_[static_cast<std::size_t>(site.layer)].view(rows()).slice_rows(begin, count), call.out);
        ops_.add_changes(call);
    }
    return projected_.view(rows());
}

// heads * context, where `context` is the longest text in whole blocks.
std::int64_t DisentangledBias::bias_columns(std::int64_t longest) const {
    const std::int64_t block = backend_.block_size();
    return config().heads * ((longest + block - 1) / block * block);
}

// Written to, so that it is not counted as free when the memory for adapters is planned: a system gives a page when it is first touched.
std::unique_ptr<kernels::Buffer> DisentangledBias::take_memory(std::int64_t rows_max) const {
    const std::int64_t columns = bias_columns(std::min(rows_max, config().max_positions));
    const std::size_t row_bytes = static_cast<std::size_t>(columns) * sizeof(float);
    auto memory = backend_.allocate(static_cast<std::size_t>(rows_max) * row_bytes);
    const std::vector<std::byte> zeros(row_bytes);
    for (std::int64_t row = 0; row < rows_max; ++row) {
        backend_.upload(static_cast<std::byte*>(memory->data()) + static_cast<std::size_t>(row) * row_bytes, zeros);
    }
    return memory;
}

Matrix DisentangledBias::view_bias(const kernels::StepInputs& step, std::int64_t longest) const {
    const std::int64_t width = bias_columns(longest);
    CHECK(static_cast<std::size_t>(step.rows * width) * sizeof(float) <= bias_->bytes(), "the bias has memory for the largest step");
    return {.data = bias_->data(), .format = kernels::Format::float32, .rows = step.rows, .columns = width, .stride = width};
}

Matrix DisentangledBias::run(const Layer& layer, const Site& site, const kernels::StepInputs& step, const Matrix& qkv) {
    const DisentangledConfig& disentangled = *config().disentangled;
    const std::int64_t longest = std::ranges::max(step.sequences, {}, &kernels::StepSequence::row_count).row_count;
    const Matrix bias = view_bias(step, longest);
    const auto position_at = [&](std::int64_t distance) {
        return position_of_distance_[static_cast<std::size_t>(config().max_positions - 1 + distance)];
    };
    const std::int64_t position_begin = position_at(1 - longest);
    const std::int64_t position_count = position_at(longest - 1) - position_begin + 1;
    const std::int64_t width = config().heads * config().head_dim;
    const std::int64_t key_begin = disentangled.has_queries || disentangled.shares_projections ? width : 0;

    const auto changed = [&](const Adapter& adapter) { return adapter.at(site.layer, projection()) != nullptr ? &adapter : nullptr; };
    std::size_t first = 0;  // sequence
    for_changed_rows(site.adapters, step.rows, changed, [&](std::int64_t begin, std::int64_t count, const Adapter* adapter) {
        std::size_t end = first;
        while (end < step.sequences.size() && step.sequences[end].row_begin < begin + count) ++end;
        const Matrix positions = adapter == nullptr ? of_base_[static_cast<std::size_t>(site.layer)].view(rows())
                                                    : positions_of(layer, site, *adapter, position_begin, position_count);
        backend_.disentangled_bias({.out = bias,
                                    .qkv = qkv,
                                    .heads = config().heads,
                                    .head_dim = config().head_dim,
                                    .scale = layer.attention_scale,
                                    .position_of_distance = position_of_distance_,
                                    .keys = disentangled.has_keys ? positions.slice_columns(key_begin, width) : Matrix{},
                                    .queries = disentangled.has_queries ? positions.slice_columns(0, width) : Matrix{},
                                    .sequences = step.sequences.subspan(first, end - first),
                                    .step = step});
        first = end;
    });
    return bias;
}

}  // namespace lorry::engine
