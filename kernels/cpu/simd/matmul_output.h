// The last step of every matmul kernel: adds bias, accumulates, and stores the columns that exist. Used by matmul.h, dot_matmul.h and
// tile_matmul.h.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct MatmulOutput {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    static constexpr int lanes = Isa::lanes;

    // Finishes `vectors` vectors of one row. Task is MatmulTask or DotTask.
    template <int vectors, class Task>
    [[gnu::always_inline]] static inline void finish(const Task& task, std::int64_t row, std::int64_t column, const Floats* sums) {
        float* const out = task.out + row * task.out_stride + column;
        const std::int64_t columns = task.out_features - column;
        if (columns >= vectors * lanes) [[likely]] {
            // One branch for all vectors: g++ moves the code of each branch to the end of the function.
            Floats wide[extent(vectors)];
#pragma GCC unroll 4
            for (int i = 0; i < vectors; ++i) wide[i] = sums[i];
            if (task.bias != nullptr) {
#pragma GCC unroll 4
                for (int i = 0; i < vectors; ++i) wide[i] += V::load(task.bias + column + i * lanes);
            }
            if (task.accumulate) {
#pragma GCC unroll 4
                for (int i = 0; i < vectors; ++i) wide[i] += V::load(out + i * lanes);
            }
#pragma GCC unroll 4
            for (int i = 0; i < vectors; ++i) V::store(out + i * lanes, wide[i]);
            return;
        }
        float values[extent(vectors * lanes)];
        for (int i = 0; i < vectors; ++i) V::store(values + i * lanes, sums[i]);
        for (std::int64_t i = 0; i < columns; ++i) {
            float value = values[i];
            if (task.bias != nullptr) value += task.bias[column + i];
            if (task.accumulate) value += out[i];
            out[i] = value;
        }
    }
};

}  // namespace lorry::kernels::cpu
