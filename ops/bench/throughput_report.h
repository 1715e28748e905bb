// Renders the result of a throughput run as text and as JSON. Called by throughput.cpp. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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

// How the throughput grows with the number of threads.
struct CurvePoint {
    std::int64_t threads = 0;
    ThroughputReport report;
};
// A line for each point, compared with the first.
std::string curve_text(std::span<const CurvePoint> curve);
// As "curve" the threads of each point, and its figures with their circumstances.
schema::Json curve_json(std::span<const CurvePoint> curve);

}  // namespace lorry::ops
