// What a run of many requests says to people and to scripts: the text and the JSON of `lorry bench throughput`. Called by
// command_bench_throughput.cpp and command_bench_machine.cpp. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "kernels/backend.h"
#include "kernels/cpu/rates.h"
#include "ops/throughput_bench.h"
#include "schema/json.h"

namespace lorry::ops {

// What the machine was seen to do in the minutes of the run, and what of it sums over these weights may use, in operations per second.
struct MachineLimits {
    kernels::cpu::Rates rates;
    double operations = 0.0;
    double adapter_operations = 0.0;  // adapters stay as they are when the base is quantized
};
MachineLimits limits_of(const kernels::cpu::Rates& rates, kernels::CpuOptions options);

struct ThroughputReport {
    schema::Json circumstances;  // what was run on which machine
    ThroughputResult result;
    std::optional<MachineLimits> limits;  // a GPU's are not measured
    std::optional<double> base_seconds;   // of the same requests without their adapters, if they were run as well
    std::size_t memory_peak = 0;          // bytes
};

std::string throughput_text(const ThroughputReport& report);
schema::Json throughput_json(const ThroughputReport& report);
schema::Json rates_json(const kernels::cpu::Rates& rates);

}  // namespace lorry::ops
