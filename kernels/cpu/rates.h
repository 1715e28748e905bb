// Measures how fast this machine can read memory and multiply: the limits that benchmarks compare the kernels with. Called by `lorry
// bench`.
#pragma once

#include <optional>

#include "kernels/backend.h"

namespace lorry::kernels::cpu {

// Bytes or operations per second (a multiplication and an addition are two operations).
struct Rates {
    int threads = 0;
    double copy = 0.0;                   // bytes read plus bytes written
    double read = 0.0;                   // from memory, of far more than the caches hold
    double float32 = 0.0;                // multiply-adds of the instruction set in use
    std::optional<double> bfloat16_dot;  // if the processor multiplies bfloat16 directly; with tiles (AMX) if it has them
    std::optional<double> int8_dot;      // also with tiles if it has them

    // Keeps the larger of each rate: on a shared machine, errors only make rates too small.
    void take_better(const Rates& other);
};

// Takes about half a second, and 256 MiB or four times the size of the last-level caches.
// threads: 0 for all that this process may use; isa: as CpuOptions.
Rates measure_rates(int threads, std::optional<CpuIsa> isa);

}  // namespace lorry::kernels::cpu
