// Runs attention alone, over the layers of a model's shape and a KV cache full of noise. Called by `lorry bench attention` and
// tune_bench.cpp.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/model/model_config.h"
#include "ops/bench/limits.h"
#include "ops/bench/noise.h"

namespace lorry::ops {

struct AttentionShape {
    std::string name;
    std::int64_t sequences = 0;
    std::int64_t tokens = 0;  // tokens of each sequence, including the rows
    std::int64_t rows = 0;    // rows of each sequence: its last tokens
};

// Decoding with each of these batch sizes, all at `context` tokens; and prompts of each of these lengths, as many as `step_tokens` hold.
std::vector<AttentionShape> attention_shapes(std::span<const std::int64_t> batches, std::int64_t context,
                                             std::span<const std::int64_t> prompts, std::int64_t step_tokens);

class LayerAttention {
public:
    LayerAttention(const engine::ModelConfig& config, std::unique_ptr<kernels::Backend> backend, const AttentionShape& shape);

    // Runs `layers` layers from `first` on; returns seconds.
    double run(std::size_t first, std::size_t layers);
    // Work of all layers: the keys and values of each sequence are read once.
    Work work() const;

private:
    std::int64_t rows_max() const { return std::max(shape_.tokens, shape_.sequences * shape_.rows); }
    kernels::StepInputs step_of(std::span<const kernels::StepSequence> sequences) const;
    void store(const kernels::StepSequence& sequence);

    const engine::ModelConfig config_;
    const AttentionShape shape_;
    NoisyBackend backend_;
    const kernels::Matrix qkv_;
    const kernels::Matrix out_;
    const std::vector<std::int32_t> zeros_;
    std::unique_ptr<kernels::KvCache> cache_;
    std::vector<kernels::BlockId> blocks_;
    std::vector<kernels::StepSequence> sequences_;
    kernels::StepInputs step_;
};

}  // namespace lorry::ops
