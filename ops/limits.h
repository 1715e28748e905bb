// What the machine can do at most, as it was seen in the minutes of a benchmark: what figures are shares of. Used by the commands of
// `lorry bench`. Pure, but for gpu_limits.
#pragma once

#include <optional>
#include <string>

#include "kernels/backend.h"
#include "kernels/cpu/rates.h"
#include "kernels/cuda/tuning.h"
#include "schema/json.h"

namespace lorry::ops {

// Per second; of operations what sums over weights of one format may use.
struct MachineLimits {
    double bytes = 0.0;
    double operations = 0.0;
    double adapter_operations = 0.0;  // also of attention: these stay as they are when the base is quantized
    std::string seen;                 // all that was measured, for people
    schema::Json machine;             // and for scripts
};

MachineLimits limits_of(const kernels::cpu::Rates& rates, kernels::CpuOptions options);
// fp8 is taken to multiply twice as fast as bfloat16, which the chips that have it promise.
MachineLimits limits_of(const kernels::cuda::ChipRates& rates, kernels::Quantization quantize);
// Measures. Without cuBLASLt it says so on stderr: there is nothing then that multiplies as fast as the chip can.
std::optional<MachineLimits> gpu_limits(kernels::Quantization quantize);

schema::Json rates_json(const kernels::cpu::Rates& rates);

}  // namespace lorry::ops
