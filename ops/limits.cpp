// From rates to limits, and in words.
#include "ops/limits.h"

#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "ops/units.h"

namespace lorry::ops {
namespace {

using kernels::cpu::Rates;
using schema::Json;

// Of the fastest instructions that sums over these weights may use.
double operations_limit(const Rates& rates, const kernels::CpuOptions& options) {
    if (options.quantize != kernels::Quantization::none) return std::max(rates.float32, rates.int8_dot.value_or(0.0));
    if (options.weights == kernels::Format::float32) return rates.float32;
    return std::max(rates.float32, rates.bfloat16_dot.value_or(0.0));
}

// "copy 34.8 GB/s, read …"; what the processor cannot do is left out.
std::string show_rates(const Rates& rates) {
    std::string text = fmt::format("copy {}, read {}, float32 {}", show_giga(rates.copy, "GB/s"), show_giga(rates.read, "GB/s"),
                                   show_giga(rates.float32, "GFLOP/s"));
    if (rates.bfloat16_dot) text += fmt::format(", bfloat16 {}", show_giga(*rates.bfloat16_dot, "GFLOP/s"));
    if (rates.int8_dot) text += fmt::format(", int8 {}", show_giga(*rates.int8_dot, "GOP/s"));
    return text;
}

}  // namespace

MachineLimits limits_of(const Rates& rates, kernels::CpuOptions options) {
    MachineLimits limits{
        .bytes = rates.read, .operations = operations_limit(rates, options), .seen = show_rates(rates), .machine = rates_json(rates)};
    options.quantize = kernels::Quantization::none;
    limits.adapter_operations = operations_limit(rates, options);
    return limits;
}

MachineLimits limits_of(const kernels::cuda::ChipRates& rates, kernels::Quantization quantize) {
    const double bfloat16 = rates.operations_per_second;
    return {
        .bytes = rates.copied_per_second,
        .operations = quantize == kernels::Quantization::fp8 ? 2.0 * bfloat16 : bfloat16,
        .adapter_operations = bfloat16,
        .seen = fmt::format("copy {}, bfloat16 {}", show_giga(rates.copied_per_second, "GB/s"), show_giga(bfloat16, "GFLOP/s")),
        .machine = Json::object({{"copy_bytes_per_second", rates.copied_per_second}, {"bfloat16_dot_operations_per_second", bfloat16}})};
}

std::optional<MachineLimits> gpu_limits(kernels::Quantization quantize) {
    const auto rates = kernels::cuda::measure_chip();
    if (rates) return limits_of(*rates, quantize);
    std::cerr << "no limits beside these figures: " << rates.error() << '\n';
    return std::nullopt;
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
