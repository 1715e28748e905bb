// Renders the result of a throughput run as text and as JSON. Called by throughput.cpp. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "ops/bench/limits.h"
#include "ops/bench/throughput_bench.h"
#include "schema/json.h"

namespace lorry::ops {

struct ThroughputReport {
    schema::Json circumstances;  // what was run, and on which machine
    ThroughputResult result;
    std::optional<MachineLimits> limits;   // nullopt: this device cannot be measured
    std::optional<ThroughputResult> base;  // the same requests without adapters, if they were run as well
    std::size_t memory_peak = 0;           // bytes
};

std::string throughput_text(const ThroughputReport& report);
schema::Json throughput_json(const ThroughputReport& report);

}  // namespace lorry::ops
