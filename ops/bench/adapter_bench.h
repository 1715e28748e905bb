// Runs a backlog of requests for many more adapters than memory holds, some requested far more often than others (Zipf's law). Called by
// `lorry bench adapters`.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/adapter_cache.h"
#include "ops/bench/throughput_bench.h"
#include "ops/engine_setup.h"

namespace lorry::ops {

struct AdapterShape {
    std::int64_t requests = 1000;
    std::int64_t in_flight = 256;  // requests the engine knows at a time; if all, waits only reflect the length of the backlog
    TokenRange input_tokens{128, 128};
    TokenRange output_tokens{64, 64};
    double exponent = 1.0;  // the k-th adapter is requested in proportion to 1 / k^exponent
    std::vector<engine::AdapterSource> adapters;
};

struct AdapterWay {
    const char* name = "";
    std::size_t adapter_bytes = 0;  // memory for adapters
    bool group = true;              // requests for adapters that are already in the batch go first
    bool borrow = false;            // adapters may also use spare memory of the KV cache
};

struct AdapterResult {
    double seconds = 0.0;
    std::uint64_t drawn_tokens = 0;
    std::uint64_t steps = 0;
    std::uint64_t loads = 0;
    std::size_t adapter_bytes = 0;  // memory taken by adapters at the end
    double adapters_per_step = 0.0;
    // For each requested adapter, ascending: the average wait of its requests until they started, in seconds.
    std::vector<double> waits;
    double tokens_per_second() const { return static_cast<double>(drawn_tokens) / seconds; }
};

// Starts with as many adapters in memory as fit, including the popular ones. Every run has the same requests in the same order, so that
// ways and runs do not differ in anything else. Leaves an engine of this way in the setup.
AdapterResult run_adapters(EngineSetup& setup, const AdapterShape& shape, const AdapterWay& way);

}  // namespace lorry::ops
