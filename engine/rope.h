// Rotary position embeddings: frequencies of all variants as transformers' modeling_rope_utils defines them, and the table on the
// device that rope_store reads. Called by model.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/model_config.h"
#include "kernels/backend.h"

namespace lorry::engine {

struct RopeFrequencies {
    std::vector<float> inverse;     // [head_dim / 2] radians per position
    float attention_factor = 1.0F;  // multiplies cosines and sines
};

// For a sequence of `length` tokens; only the dynamic kind depends on it.
RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t head_dim, std::int64_t length);

// Rows [cos[head_dim / 2] | sin[head_dim / 2]] on the device, computed when first asked for. One thread, the engine's.
//
// Dynamic NTK changes the frequencies with the sequence's length beyond the original context M. As in transformers' generate, where a
// prompt of P tokens runs first and then one token at a time: position p uses the frequencies for max(M, p < P ? P : p + 1) tokens.
// Row p of the table holds those of p + 1 tokens; rows of longer prompts are made on demand in a ring behind it.
class RopeTable {
public:
    RopeTable(const ModelConfig& config, kernels::Backend& backend, std::int64_t rows_max);

    kernels::Matrix matrix() const;  // [rows, head_dim], or no rows for models without rope
    std::int32_t row(std::int64_t position, std::int64_t prompt_tokens);
    bool depends_on_prompt_length(std::int64_t prompt_tokens) const;
    std::size_t bytes() const;

private:
    void write_rows(std::int64_t row_begin, std::int64_t position_begin, std::int64_t count, const RopeFrequencies& frequencies);

    RopeConfig rope_;
    std::int64_t head_dim_;
    std::int64_t positions_;  // rows [0, positions_) by position
    std::int64_t positions_done_ = 0;
    std::int64_t ring_;  // rows [positions_, positions_ + ring_) for prompts beyond the original context
    std::int64_t ring_next_ = 0;
    std::int64_t prompt_tokens_ = 0;  // that prompt_frequencies_ are for
    RopeFrequencies fixed_frequencies_;
    RopeFrequencies prompt_frequencies_;
    kernels::Backend& backend_;
    std::unique_ptr<kernels::Buffer> buffer_;
};

}  // namespace lorry::engine
