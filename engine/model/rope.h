// Rotary position embeddings: the frequencies of all variants, as transformers' modeling_rope_utils defines them, and the table on the
// device that rope_store reads. Called by model.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/model/model_config.h"
#include "kernels/backend.h"

namespace lorry::engine {

// Lowers max_positions of a model with rope to context_max tokens, at least one. Frequencies keep the configured context, so rows of the
// positions that are left do not change.
void limit_context(ModelConfig& config, std::int64_t context_max);

// The bytes of one position in the table; 0 for models without rope.
std::size_t rope_row_bytes(const ModelConfig& config);

struct RopeFrequencies {
    std::vector<float> inverse;     // [head_dim / 2] radians per position
    float attention_factor = 1.0F;  // multiplies cosines and sines
};

// The frequencies for a sequence of `length` tokens. Only the dynamic kind depends on the length.
RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t head_dim, std::int64_t length);

// Rows [cos[head_dim / 2] | sin[head_dim / 2]] on the device, computed on first use. The engine's thread only.
//
// With dynamic NTK the frequencies change with the sequence's length beyond the original context M. In transformers' generate, a prompt of
// P tokens runs first, then one token at a time; so position p uses the frequencies for max(M, p < P ? P : p + 1) tokens. Row p of the
// table has the frequencies for p + 1 tokens. Rows for longer prompts are computed on demand in a ring after the table.
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
    std::int64_t prompt_tokens_ = 0;  // the prompt's length that prompt_frequencies_ are for
    RopeFrequencies fixed_frequencies_;
    RopeFrequencies prompt_frequencies_;
    kernels::Backend& backend_;
    std::unique_ptr<kernels::Buffer> buffer_;
};

}  // namespace lorry::engine
