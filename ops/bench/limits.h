// Describes work (bytes and operations) and the limits of the machine, measured in the same minutes as the benchmark whose figures are
// shares of them. Used by `lorry bench`. Pure, except for gpu_limits().
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

// The limits of a machine. Operation rates are those of the fastest instructions that may be used for the number formats of each kind of
// work.
struct MachineLimits {
    double bytes = 0.0;       // per second
    OperationRate matmuls;    // for the base's weights
    OperationRate attention;  // over the KV cache
    OperationRate adapters;   // for adapters, which are not quantized with the base
    std::string seen;         // everything that was measured, for people
    schema::Json machine;     // the same for scripts
};

// One kind of work in each step, and how many of its operations the machine does per second.
struct PacedWork {
    std::span<const Work> steps;
    double operations_per_second = 0.0;
};
// The least time for these steps. Each takes the time of all its bytes or, one kind after the other, of its operations, whichever is
// longer.
double seconds_at_least(std::initializer_list<PacedWork> kinds, double bytes_per_second);

MachineLimits limits_of(const kernels::cpu::Rates& rates, const kernels::StorageOptions& options);
// Attention widens an fp8 cache to bfloat16, so its limit is bfloat16's.
MachineLimits limits_of(const kernels::cuda::ChipRates& rates, kernels::Quantization quantize);
// Measures the GPU. Returns nullopt and says so on stderr without cuBLASLt: then nothing multiplies as fast as the chip can.
std::optional<MachineLimits> gpu_limits(kernels::Quantization quantize);

schema::Json rates_json(const kernels::cpu::Rates& rates);
schema::Json rates_json(const kernels::cuda::ChipRates& rates);

}  // namespace lorry::ops
