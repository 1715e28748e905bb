// What a run of many requests says to people and to scripts: the text and the JSON of `lorry bench throughput`. Called by
// throughput.cpp. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "ops/bench/limits.h"
#include "ops/bench/throughput_bench.h"
#include "schema/json.h"

namespace lorry::ops {

struct ThroughputReport {
    schema::Json circumstances;  // what was run on which machine
    ThroughputResult result;
    std::optional<MachineLimits> limits;   // nullopt: nothing measures this device
    std::optional<ThroughputResult> base;  // of the same requests without their adapters, if they were run as well
    std::size_t memory_peak = 0;           // bytes
};

std::string throughput_text(const ThroughputReport& report);
schema::Json throughput_json(const ThroughputReport& report);

}  // namespace lorry::ops
