// A model whose next token is a hash of all tokens before it, which it reads back from the KV cache. Any mistake in block tables, prefix
// reuse, forks, chunks or preemption changes its answers. Used by tests of the engine's bookkeeping, which need no arithmetic.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/model/model.h"
#include "kernels/backend.h"

namespace lorry::tests {

inline constexpr std::int64_t hash_vocabulary = 487;
inline constexpr std::int64_t hash_block_size = 4;

// The hash of `tokens`, and the token that the model draws after them.
std::uint64_t hash_of(std::span<const kernels::TokenId> tokens);
kernels::TokenId next_token(std::uint64_t hash);
// The first `count` tokens that follow the prompt.
std::vector<kernels::TokenId> hash_tokens(std::vector<kernels::TokenId> prompt, std::int64_t count);
// The log-probability it gives to `token` after a prefix with this hash.
float hash_logprob(std::uint64_t hash, kernels::TokenId token);
// 1 + the number of tokens with a larger one.
std::int32_t hash_rank(std::uint64_t hash, kernels::TokenId token);

// steps_queued: how many steps can be queued; with two, the results of a step are there once it is finished, as on a real device.
std::unique_ptr<kernels::Backend> make_hash_backend(std::int64_t steps_queued = 1);
// max_positions: the context limit. Each step is checked against rows_max and sample_rows_max.
std::unique_ptr<engine::Model> make_hash_model(std::int64_t max_positions, std::int64_t rows_max, std::int64_t sample_rows_max);

}  // namespace lorry::tests
