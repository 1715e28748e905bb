// A backlog of requests for many more adapters than memory holds, some of them asked for far more often than others (Zipf). Called by
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
    std::int64_t in_flight = 256;  // that the engine knows at a time; if all, waits only tell how long the backlog is
    TokenRange input_tokens{128, 128};
    TokenRange output_tokens{64, 64};
    double exponent = 1.0;  // the adapter at place k is asked for as often as 1 / k^exponent
    std::vector<engine::AdapterSource> adapters;
};

struct AdapterWay {
    const char* name = "";
    std::size_t adapter_bytes = 0;  // what they may take
    bool group = true;              // requests for adapters that are in the batch go first
    bool borrow = false;            // and what the KV cache has to spare
};

struct AdapterResult {
    double seconds = 0.0;
    std::uint64_t drawn_tokens = 0;
    std::uint64_t steps = 0;
    std::uint64_t loads = 0;
    std::size_t adapter_bytes = 0;  // that those in memory took at the end
    double adapters_per_step = 0.0;
    // Of each adapter that was asked for, ascending: what its requests waited on average until they were admitted, in seconds.
    std::vector<double> waits;
    double tokens_per_second() const { return static_cast<double>(drawn_tokens) / seconds; }
};

// Begins with as many adapters in memory as fit, the popular ones among them. Every run has the same requests in the same order, so that
// ways and runs differ by nothing else. Leaves the setup with an engine of this way.
AdapterResult run_adapters(EngineSetup& setup, const AdapterShape& shape, const AdapterWay& way);

}  // namespace lorry::ops
