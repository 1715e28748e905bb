// Computes limits from measured rates and describes them.
#include "ops/bench/limits.h"

#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "ops/units.h"

namespace lorry::ops {
namespace {

using kernels::cpu::Rates;
using schema::Json;

double int8_limit(const Rates& rates) { return std::max(rates.float32, rates.int8_dot.value_or(0.0)); }
// For 16-bit integers, which are multiplied in pairs where int8 are multiplied by four.
double int16_limit(const Rates& rates) { return std::max(rates.float32, rates.int8_dot.value_or(0.0) / 2.0); }

// For numbers that are not quantized.
OperationRate wide_limit(const Rates& rates, kernels::Format format) {
    const bool is_float32 = format == kernels::Format::float32;
    return {.per_second = is_float32 ? rates.float32 : std::max(rates.float32, rates.bfloat16_dot.value_or(0.0))};
}

OperationRate matmul_limit(const Rates& rates, const kernels::StorageOptions& options) {
    if (options.quantize == kernels::Quantization::none) return wide_limit(rates, options.weights);
    return {.per_second = int8_limit(rates), .of_integers = true};
}

// With an int8 cache, scores (half of the operations) are sums over int8; values (the other half) are weighted by 16-bit integers.
OperationRate attention_limit(const Rates& rates, const kernels::StorageOptions& options) {
    if (options.kv == kernels::KvFormat::as_weights) return wide_limit(rates, options.weights);
    return {.per_second = 2.0 / (1.0 / int8_limit(rates) + 1.0 / int16_limit(rates)), .of_integers = true};
}

// "copy 34.8 GB/s, read …"; omits what the processor cannot do.
std::string show_rates(const Rates& rates) {
    std::string text = fmt::format("copy {}, read {}, float32 {}", show_giga(rates.copy, "GB/s"), show_giga(rates.read, "GB/s"),
                                   show_giga(rates.float32, "GFLOP/s"));
    if (rates.bfloat16_dot) text += fmt::format(", bfloat16 {}", show_giga(*rates.bfloat16_dot, "GFLOP/s"));
    if (rates.int8_dot) text += fmt::format(", int8 {}", show_giga(*rates.int8_dot, "GOP/s"));
    return text;
}

}  // namespace

Work& Work::operator+=(const Work& other) {
    bytes += other.bytes;
    operations += other.operations;
    return *this;
}

Work sum_of(std::span<const Work> works) {
    Work sum;
    for (const Work& work : works) sum += work;
    return sum;
}

double seconds_at_least(std::initializer_list<PacedWork> kinds, double bytes_per_second) {
    CHECK(kinds.size() > 0, "a step has work");
    double seconds = 0.0;
    for (std::size_t step = 0; step < kinds.begin()->steps.size(); ++step) {
        double of_bytes = 0.0;
        double of_operations = 0.0;
        for (const PacedWork& kind : kinds) {
            CHECK(kind.steps.size() == kinds.begin()->steps.size(), "all kinds of work have the same steps");
            of_bytes += kind.steps[step].bytes / bytes_per_second;
            of_operations += kind.steps[step].operations / kind.operations_per_second;
        }
        seconds += std::max(of_bytes, of_operations);
    }
    return seconds;
}

MachineLimits limits_of(const Rates& rates, const kernels::StorageOptions& options) {
    return {.bytes = rates.read,
            .matmuls = matmul_limit(rates, options),
            .attention = attention_limit(rates, options),
            .adapters = wide_limit(rates, options.weights),
            .seen = show_rates(rates),
            .machine = rates_json(rates)};
}

MachineLimits limits_of(const kernels::cuda::ChipRates& rates, kernels::Quantization quantize) {
    const double bfloat16 = rates.operations_per_second;
    return {
        .bytes = rates.copied_per_second,
        .matmuls = {.per_second = quantize == kernels::Quantization::fp8 ? rates.fp8_rate() : bfloat16},
        .attention = {.per_second = bfloat16},
        .adapters = {.per_second = bfloat16},
        .seen = fmt::format("copy {}, bfloat16 {}, fp8 {}{}", show_giga(rates.copied_per_second, "GB/s"), show_giga(bfloat16, "GFLOP/s"),
                            show_giga(rates.fp8_rate(), "GFLOP/s"), rates.fp8_operations_per_second ? "" : " (assumed)"),
        .machine = rates_json(rates)};
}

std::optional<MachineLimits> gpu_limits(kernels::Quantization quantize) {
    const auto rates = kernels::cuda::measure_chip();
    if (rates) return limits_of(*rates, quantize);
    std::cerr << "no limits to compare these figures with: " << rates.error() << '\n';
    return std::nullopt;
}

Json rates_json(const kernels::cuda::ChipRates& rates) {
    return Json::object({{"copy_bytes_per_second", rates.copied_per_second},
                         {"bfloat16_dot_operations_per_second", rates.operations_per_second},
                         {"fp8_dot_operations_per_second", rates.fp8_operations_per_second}});
}

Json rates_json(const Rates& rates) {
    return Json::object({{"threads", rates.threads},
                         {"copy_bytes_per_second", rates.copy},
                         {"read_bytes_per_second", rates.read},
                         {"float32_operations_per_second", rates.float32},
                         {"bfloat16_dot_operations_per_second", rates.bfloat16_dot},
                         {"int8_dot_operations_per_second", rates.int8_dot}});
}

}  // namespace lorry::ops
