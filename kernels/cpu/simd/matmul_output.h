// The last step of every matmul kernel: adds bias, accumulates or activates, and stores the columns that exist. Used by matmul.h,
// dot_matmul.h, tile_matmul.h and tile_rows.h.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/activation.h"
#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct MatmulOutput {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    static constexpr int lanes = Isa::lanes;

    // Finishes `vectors` vectors of one row, from `place` on in the panels. Task: MatmulTask or DotTask.
    template <int vectors, class Task>
    [[gnu::always_inline]] static inline void finish(const Task& task, std::int64_t row, std::int64_t place, const Floats* sums) {
        if constexpr (vectors == 2 && requires { task.part_stride; }) {
            if (task.part_stride != 0) {
                finish_columns<1>(task, row, place / 2, place / 2, sums);
                return finish_columns<1>(task, row, place / 2, place / 2 + task.part_stride, sums + 1);
            }
        }
        finish_columns<vectors>(task, row, place, place, sums);
    }

    // The same, activated. Where two parts share a panel, the first vector belongs to the gate, the second to what the gate multiplies.
    template <int vectors>
    [[gnu::always_inline]] static inline void finish(const ActivatedDotTask& task, std::int64_t row, std::int64_t place,
                                                     const Floats* sums) {
        if constexpr (vectors == 2) {
            if (task.part_stride != 0) return activate(task, row, place / 2, sums[0], &sums[1]);
        }
#pragma GCC unroll 2
        for (int i = 0; i < vectors; ++i) activate(task, row, place + i * lanes, sums[i], nullptr);
    }

    // finish() for kernels of a few rows, which are compiled for each number of rows and unrolled: activations are a call, as otherwise all
    // their code would be there for each row.
    template <int vectors, class Task>
    [[gnu::always_inline]] static inline void finish_row_of_few(const Task& task, std::int64_t row, std::int64_t place,
                                                                const Floats* sums) {
        finish<vectors>(task, row, place, sums);
    }
    template <int vectors>
    [[gnu::noinline]] static void finish_row_of_few(const ActivatedDotTask& task, std::int64_t row, std::int64_t place,
                                                    const Floats* sums) {
        finish<vectors>(task, row, place, sums);
    }

    // Prefetches where `finish` writes.
    template <int vectors>
    [[gnu::always_inline]] static inline void prefetch(const DotTask& task, std::int64_t row, std::int64_t place) {
        const float* const out = task.out + row * task.out_stride;
#pragma GCC unroll 4
        for (int i = 0; i < vectors; ++i) {
            const bool is_apart = vectors == 2 && task.part_stride != 0;
            __builtin_prefetch(out + (is_apart ? place / 2 + i * task.part_stride : place + i * lanes), 1, 3);
        }
    }
    template <int vectors>
    [[gnu::always_inline]] static inline void prefetch(const ActivatedDotTask&, std::int64_t, std::int64_t) {}

private:
    // column: within the part; output: within the whole weight.
    template <int vectors, class Task>
    [[gnu::always_inline]] static inline void finish_columns(const Task& task, std::int64_t row, std::int64_t column, std::int64_t output,
                                                             const Floats* sums) {
        float* const out = task.out + row * task.out_stride + output;
        const std::int64_t columns = task.out_features - column;
        if (columns >= vectors * lanes) [[likely]] {
            // One branch for all vectors: g++ moves the code of each branch to the end of the function.
            Floats wide[extent(vectors)];
#pragma GCC unroll 4
            for (int i = 0; i < vectors; ++i) wide[i] = sums[i];
            if (task.bias != nullptr) {
#pragma GCC unroll 4
                for (int i = 0; i < vectors; ++i) wide[i] += V::load(task.bias + output + i * lanes);
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
            if (task.bias != nullptr) value += task.bias[output + i];
            if (task.accumulate) value += out[i];
            out[i] = value;
        }
    }

    // sums: those of the outputs from `column` on. factors: those of the outputs that these gate, or null.
    [[gnu::always_inline]] static inline void activate(const ActivatedDotTask& task, std::int64_t row, std::int64_t column, Floats sums,
                                                       const Floats* factors) {
        const std::int64_t columns = task.out_features - column;
        if (columns <= 0) return;
        sums = biased(task, sums, column, columns);
        if (task.addend != nullptr) sums += V::load_up_to(task.addend + row * task.addend_stride + column, columns);
        Floats value = Activate<Isa>::of(task.kind, sums);
        if (factors != nullptr) {
            Floats factor = biased(task, *factors, column + task.part_stride, columns);
            if (task.addend != nullptr)
                factor += V::load_up_to(task.addend + row * task.addend_stride + task.addend_part + column, columns);
            value *= factor;
        }
        if (task.out_bfloat16 != nullptr) {
            V::store_up_to(reinterpret_cast<Bf16*>(task.out_bfloat16) + row * task.out_stride + column, value, columns);
        } else {
            V::store_up_to(task.out + row * task.out_stride + column, value, columns);
        }
    }
    [[gnu::always_inline]] static inline Floats biased(const DotTask& task, Floats sums, std::int64_t output, std::int64_t columns) {
        if (task.bias == nullptr) return sums;
        return sums + V::load_up_to(task.bias + output, columns);
    }
};

}  // namespace lorry::kernels::cpu
