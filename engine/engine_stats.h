// Counts of an engine since its start, and its state after the last step. Filled by engine.cpp and batch.cpp; read by metrics and
// benchmarks.
#pragma once

#include <cstdint>

#include "engine/adapter_cache.h"

namespace lorry::engine {

struct EngineStats {
    std::uint64_t steps = 0;
    std::uint64_t prompt_tokens = 0;  // computed, including recomputed ones
    std::uint64_t drawn_tokens = 0;
    std::uint64_t forced_tokens = 0;    // of answers: a grammar allowed no others, so that they were not drawn
    std::uint64_t drafted_tokens = 0;   // guesses that were computed
    std::uint64_t accepted_tokens = 0;  // of these, those that were right
    std::uint64_t held_back = 0;        // rows that were computed again, as what they might draw was not known in time
    std::uint64_t cached_tokens = 0;    // taken from the prefix index
    std::uint64_t preemptions = 0;
    std::uint64_t rows = 0;             // computed
    std::uint64_t sampled_rows = 0;     // of these, rows with logits
    std::uint64_t attended_tokens = 0;  // sum over rows of the tokens that the row attends to
    std::uint64_t context_tokens = 0;   // sum over steps and sequences of the tokens in context: the least that was read of the KV cache
    // Sums over steps: different adapters, their elements, and elements times rows (the last layer counts in full, although only rows that
    // sample go through all of it).
    std::uint64_t adapter_groups = 0;
    std::uint64_t adapter_elements = 0;
    std::uint64_t adapter_products = 0;
    std::int64_t running = 0;
    std::int64_t waiting = 0;
    std::int64_t last_rows = 0;      // rows of the last step
    std::int64_t last_adapters = 0;  // different adapters in the last step
    std::int64_t kv_blocks = 0;
    std::int64_t kv_blocks_used = 0;
    std::int64_t kv_blocks_lent = 0;  // to adapters
    AdapterCache::Stats adapters;
};

}  // namespace lorry::engine
