// What work takes of a machine, and what the machine can do at most, as it was seen in the minutes of a benchmark: what figures are shares
// of. Used by `lorry bench`. Pure, but for gpu_limits.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "kernels/backend.h"
#include "kernels/cpu/rates.h"
#include "kernels/cuda/cublaslt/tuning.h"
#include "schema/json.h"

namespace lorry::ops {

struct Work {
    double bytes = 0.0;  // read from memory
    double operations = 0.0;
    Work& operator+=(const Work& other);
};
Work sum_of(std::span<const Work> works);

struct OperationRate {
    double per_second = 0.0;
    bool of_integers = false;
    const char* unit() const { return of_integers ? "GOP/s" : "GFLOP/s"; }
};

// Of operations: the fastest that may be used for numbers of the formats that each kind of work has.
struct MachineLimits {
    double bytes = 0.0;       // per second
    OperationRate matmuls;    // of the base's weights
    OperationRate attention;  // over the KV cache
    OperationRate adapters;   // which stay as they are when the base is quantized
    std::string seen;         // all that was measured, for people
    schema::Json machine;     // and for scripts
};

// One kind of work in each step, and how many of its operations the machine does per second.
struct PacedWork {
    std::span<const Work> steps;
    double operations_per_second = 0.0;
};
// Of steps that have these kinds of work, each taking what all its bytes take or what its operations take, one kind after the other,
// whichever is more.
double seconds_at_least(std::initializer_list<PacedWork> kinds, double bytes_per_second);

MachineLimits limits_of(const kernels::cpu::Rates& rates, const kernels::StorageOptions& options);
// Attention widens an fp8 cache to bfloat16.
MachineLimits limits_of(const kernels::cuda::ChipRates& rates, kernels::Quantization quantize);
// Measures. Without cuBLASLt it says so on stderr: there is nothing then that multiplies as fast as the chip can.
std::optional<MachineLimits> gpu_limits(kernels::Quantization quantize);

schema::Json rates_json(const kernels::cpu::Rates& rates);
schema::Json rates_json(const kernels::cuda::ChipRates& rates);

}  // namespace lorry::ops
