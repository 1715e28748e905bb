// What this machine can do at most: the limits that benchmarks measure the kernels against. Called by `lorry bench`.
#pragma once

#include <optional>

#include "kernels/backend.h"

namespace lorry::kernels::cpu {

// All per second: bytes, or operations (a multiplication and an addition are two).
struct Rates {
    int threads = 0;
    double copy = 0.0;                   // bytes read plus bytes written
    double read = 0.0;                   // from memory, far beyond the caches
    double float32 = 0.0;                // multiply-adds of the instruction set in use
    std::optional<double> bfloat16_dot;  // where the processor multiplies bfloat16 itself; by tiles (AMX) where it has them
    std::optional<double> int8_dot;      // likewise by tiles

    // Each the better one: a shared machine only ever measures too little.
    void take_better(const Rates& other);
};

// Takes about half a second, and 256 MiB or four times what the last caches hold.
// threads: 0 for all that this process may use; isa: as CpuOptions.
Rates measure_rates(int threads, std::optional<CpuIsa> isa);

}  // namespace lorry::kernels::cpu
