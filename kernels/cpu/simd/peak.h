// Measures the limits that `lorry bench machine` reports: as many independent multiply-adds in registers as the processor executes, and as
// many loads as memory delivers. Instantiated by table.h.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct Peak {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    // Twelve sums cover the fastest known processors (two multiply-adds per cycle, four cycles each) and fit every register file.
    static constexpr int sums_count = 12;

    static double multiply_adds(std::int64_t turns) {
        Floats sums[extent(sums_count)];
        for (int i = 0; i < sums_count; ++i) sums[i] = V::all(static_cast<float>(i));
        const Floats x = V::all(1.0F - 0x1p-20F);
        for (std::int64_t turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 32
            for (int i = 0; i < sums_count; ++i) sums[i] = V::fma(sums[i], x, x);
        }
        float total = 0.0F;
        for (int i = 0; i < sums_count; ++i) total += V::sum(sums[i]);
        [[maybe_unused]] volatile float used = total;
        return 2.0 * sums_count * Isa::lanes * static_cast<double>(turns);
    }

    static float sum(const float* x, std::int64_t size) {
        constexpr int streams = 4;  // a single stream of cache lines does not keep enough misses in flight
        const std::int64_t stride = size / streams;
        Floats sums[extent(streams)] = {};
        for (std::int64_t at = 0; at < stride; at += V::lanes) {
#pragma GCC unroll 4
            for (int i = 0; i < streams; ++i) sums[i] += V::load(x + i * stride + at);
        }
        return V::sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
};

}  // namespace lorry::kernels::cpu
