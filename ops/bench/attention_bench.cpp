// Stores keys and values one sequence at a time, then runs attention for the rows of all.
#include "ops/bench/attention_bench.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "engine/model/model.h"
#include "engine/request.h"
#include "ops/units.h"

namespace lorry::ops {

std::vector<AttentionShape> attention_shapes(std::span<const std::int64_t> batches, std::int64_t context,
                                             std::span<const std::int64_t> prompts, std::int64_t step_tokens) {
    std::vector<AttentionShape> shapes;
    for (const std::int64_t batch : batches) shapes.push_back({fmt::format("decode, {} x {}", batch, context), batch, context, 1});
    for (const std::int64_t prompt : prompts) {
        const std::int64_t sequences = std::max<std::int64_t>(1, step_tokens / prompt);
        shapes.push_back({fmt::format("prefill, {} x {}", sequences, prompt), sequences, prompt, prompt});
    }
    return shapes;
}

LayerAttention::LayerAttention(const engine::ModelConfig& config, std::unique_ptr<kernels::Backend> backend, const AttentionShape& shape)
    : config_(config),
      shape_(shape),
      backend_(std::move(backend)),
      qkv_(backend_.make(rows_max(), (config.heads + 2 * config.kv_heads) * config.head_dim)),
      out_(backend_.make(rows_max(), config.heads * config.head_dim)),
      zeros_(static_cast<std::size_t>(rows_max())) {
    const std::int64_t blocks = (shape.tokens + backend_->block_size() - 1) / backend_->block_size();
    cache_ = backend_->make_kv_cache(engine::kv_shape_of(config), shape.sequences * blocks, 0);
    for (std::int64_t i = 0; i < shape.sequences * blocks; ++i) blocks_.push_back(static_cast<kernels::BlockId>(i));
    for (std::int64_t i = 0; i < shape.sequences; ++i) {
        const std::span<const kernels::BlockId> own = std::span(blocks_).subspan(static_cast<std::size_t>(i * blocks));
        const kernels::StepSequence whole{.row_count = shape.tokens, .blocks = own.first(static_cast<std::size_t>(blocks))};
        store(whole);
        sequences_.push_back(
            {.row_begin = i * shape.rows, .row_count = shape.rows, .position = shape.tokens - shape.rows, .blocks = whole.blocks});
    }
    step_ = step_of(sequences_);
    backend_->begin_step(step_);
}

double LayerAttention::run(std::size_t first, std::size_t layers) {
    const engine::Clock::time_point begin = engine::Clock::now();
    for (std::size_t layer = first; layer < first + layers; ++layer) {
        backend_->attention({.out = out_.slice_rows(0, step_.rows),
                             .qkv = qkv_.slice_rows(0, step_.rows),
                             .heads = config_.heads,
                             .kv_heads = config_.kv_heads,
                             .head_dim = config_.head_dim,
                             .scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim)),
                             .cache = *cache_,
                             .layer = static_cast<std::int64_t>(layer),
                             .step = step_});
    }
    std::array<std::byte, 1> done;
    backend_->read_back(done, out_.data);
    return std::chrono::duration<double>(engine::Clock::now() - begin).count();
}

Work LayerAttention::work() const {
    // Row i of a sequence attends to all tokens up to its own.
    const double seen = real(shape_.rows * (2 * shape_.tokens - shape_.rows + 1)) / 2.0;
    const double token_bytes = static_cast<double>(backend_->kv_block_bytes(engine::kv_shape_of(config_))) / real(backend_->block_size());
    return {.bytes = real(shape_.sequences * shape_.tokens) * token_bytes,
            .operations = real(config_.layers * shape_.sequences) * seen * 4.0 * real(config_.heads * config_.head_dim)};
}

kernels::StepInputs LayerAttention::step_of(std::span<const kernels::StepSequence> sequences) const {
    const auto rows = static_cast<std::size_t>(sequences.back().row_begin + sequences.back().row_count);
    return {.rows = static_cast<std::int64_t>(rows),
            .tokens = std::span(zeros_).first(rows),
            .positions = std::span(zeros_).first(rows),
            .sequences = sequences};
}

void LayerAttention::store(const kernels::StepSequence& sequence) {
    const kernels::StepInputs step = step_of({&sequence, 1});
    backend_->begin_step(step);
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
        backend_->rope_store({.qkv = qkv_.slice_rows(0, step.rows),
                              .heads = config_.heads,
                              .kv_heads = config_.kv_heads,
                              .head_dim = config_.head_dim,
                              .cache = *cache_,
                              .layer = layer,
                              .step = step});
    }
    backend_->finish_step();
}

}  // namespace lorry::ops
