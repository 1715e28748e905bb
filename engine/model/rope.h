// Rotary position embeddings: the frequencies of all variants, as transformers' modeling_rope_utils defines them, and the table on the
// device that rope_store reads. Called by model.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
// What a position takes in all of the model's tables, at most.
std::size_t rope_position_bytes(const ModelConfig& config);

struct RopeFrequencies {
    std::vector<float> inverse;     // [rotated / 2] radians per position
    float attention_factor = 1.0F;  // multiplies cosines and sines
};

// The frequencies of `rotated` dimensions for a sequence of `length` tokens. Only the dynamic kind and longrope depend on the length.
RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t rotated, std::int64_t length);

// See Model::rope_length.
std::optional<std::int64_t> rope_length_of(const RopeConfig& rope, std::int64_t prompt_tokens, std::int64_t tokens_max);

// Rows [cos[head_dim / 2] | sin[head_dim / 2]] on the device, computed on first use. Pairs of dimensions that are not rotated have 1 and 0.
// The engine's thread only.
//
// With longrope a request that may grow beyond the original context has other frequencies from its first token on: those rows come after
// the others.
//
// With dynamic NTK the frequencies change with the sequence's length beyond the original context M. In transformers' generate, a prompt of
// P tokens runs first, then one token at a time; so position p uses the frequencies for max(M, p < P ? P : p + 1) tokens. Row p of the
// table has the frequencies for p + 1 tokens. Rows for longer prompts are computed on demand in a ring after the table.
class RopeTable {
public:
    RopeTable(const ModelConfig& config, kernels::Backend& backend, std::int64_t rows_max);

    kernels::Matrix matrix() const;  // [rows, head_dim], or no rows for models without rope
    // rope_length: as Model::rope_length returns it.
    std::int32_t row(std::int64_t position, std::optional<std::int64_t> rope_length);
    std::size_t bytes() const;

private:
    // Rows [begin, begin + rows) of the table, one for each position, of which `done` are written.
    struct Stretch {
        std::int64_t begin = 0;
        std::int64_t rows = 0;
        std::int64_t done = 0;
    };
    void write_until(Stretch& stretch, std::int64_t position);
    void write_rows(std::int64_t row_begin, std::int64_t position_begin, std::int64_t count, const RopeFrequencies& frequencies);

    RopeConfig rope_;
    std::int64_t head_dim_;
    std::int64_t rotated_;
    std::int64_t positions_;
    Stretch common_;
    Stretch long_;       // longrope's for long requests
    std::int64_t ring_;  // rows after those, for prompts beyond the original context (dynamic NTK)
    std::int64_t ring_next_ = 0;
    std::int64_t prompt_tokens_ = 0;  // the prompt's length that prompt_frequencies_ are for
    RopeFrequencies prompt_frequencies_;
    kernels::Backend& backend_;
    std::unique_ptr<kernels::Buffer> buffer_;
};

}  // namespace lorry::engine
