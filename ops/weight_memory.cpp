// Compares the model with the memory that is free.
#include "ops/weight_memory.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/model/rope.h"
#include "ops/command.h"
#include "ops/units.h"

namespace lorry::ops {

std::size_t kv_token_bytes_of(const kernels::Backend& backend, const kernels::KvShape& shape) {
    return backend.kv_block_bytes(shape) / static_cast<std::size_t>(backend.block_size());
}

engine::ModelReport inspect_model(const Settings& settings) {
    engine::ModelReport report = engine::inspect_model(settings.model, pooling_of(settings));
    if (report.config.quantized && settings.quantize != "none") {
        throw UsageError(fmt::format("--quantize {}: the checkpoint is quantized already ({}); leave --quantize out", settings.quantize,
                                     report.config.quantized->name));
    }
    if (!report.config.embedder) return report;
    for (const engine::DenseConfig& dense : report.config.embedder->dense) {
        report.parameters += dense.out_features * (dense.in_features + (dense.bias ? 1 : 0));
    }
    return report;
}

std::size_t fit_to_memory(const Settings& settings, const FreeMemory& memory, std::size_t kv_token_bytes, engine::ModelReport& model) {
    engine::ModelConfig& config = model.config;
    const std::int64_t projections = model.parameters - model.embedding_parameters - model.coded_parameters;
    const std::size_t weights = model.coded_bytes + kernels::stored_bytes(storage_options(settings), static_cast<std::size_t>(projections),
                                                                          static_cast<std::size_t>(model.embedding_parameters));
    // A cache of the setting's size has the table beside it; otherwise both share what is left.
    const std::size_t row_bytes = engine::rope_position_bytes(config);
    const std::size_t position_bytes = kv_token_bytes + (settings.kv_memory ? 0 : row_bytes);
    const std::size_t left = memory.bytes - std::min(memory.bytes, weights);
    const std::size_t cache = plan_memory(settings, left, position_bytes, config.max_positions, memory.of).kv_bytes;
    engine::limit_context(config, static_cast<std::int64_t>(cache / position_bytes));
    return weights + static_cast<std::size_t>(config.max_positions) * row_bytes;
}

std::optional<std::string> weights_obstacle(std::size_t weight_bytes, std::size_t available) {
    if (weight_bytes <= available) return std::nullopt;
    return fmt::format(
        "the weights and the table of positions need {}, this machine has {} free: store the weights in a narrower format (--quantize), or "
        "limit the context with a smaller --kv-memory",
        show_bytes(weight_bytes), show_bytes(available));
}

}  // namespace lorry::ops
