// Measures how long a queue of jobs takes with static and continuous batching, with and without the KV cache, by driving the same engine in
// four ways. Called by `lorry bench queue` and `lorry bench course`.
#pragma once

#include <array>
#include <vector>

#include "ops/engine_setup.h"

namespace lorry::ops {

struct QueueShape {
    std::int64_t jobs = 32;
    std::int64_t batch = 8;
    std::int64_t input_tokens = 16;
    std::int64_t long_every = 8;  // every n-th job draws output_tokens_long
    std::int64_t output_tokens_long = 100;
    std::int64_t output_tokens = 10;
};

struct QueueWay {
    bool continuous = false;  // true: a free place is filled at once; false: when the whole batch is done
    bool kv_cache = false;    // false: each token recomputes all tokens before it
};

inline constexpr std::array queue_ways = {QueueWay{.continuous = false, .kv_cache = false}, QueueWay{.continuous = true, .kv_cache = false},
                                          QueueWay{.continuous = false, .kv_cache = true}, QueueWay{.continuous = true, .kv_cache = true}};

struct QueueResult {
    QueueWay way;
    double seconds = 0.0;
    std::int64_t drawn = 0;
    std::uint64_t steps = 0;
    std::vector<double> latencies;  // of each job since the start of the run, ascending
    double tokens_per_second() const { return static_cast<double>(drawn) / seconds; }
};

// Returns the fastest of `repeat` runs. The setup must have no prefix cache and a batch of at least shape.batch.
QueueResult run_queue(EngineSetup& setup, const QueueShape& shape, QueueWay way, std::int64_t repeat);

}  // namespace lorry::ops
