// int8 and int4 weights for processors that multiply 16 bits at a time: all inputs are widened once, a panel's weights once for all rows,
// and the inner loop has only products and sums. The sums are the integers of int8_dot.h, so the results have the same bits. Instantiated
// by int8_avx2.cpp through DotMatmul; the launchers use it from the number of rows on at which widening a panel costs little.
#pragma once

#include "kernels/cpu/simd/int8_dot.h"

namespace lorry::kernels::cpu {

// Pairs of 16 bits: the first and third of four neighbours, then the second and fourth, as Isa::weights produces them.
template <class IsaOfDot>
struct WideDot {
    using Isa = IsaOfDot;
    using Sums = typename Isa::Ints;
    using Weights = typename Isa::Pairs;
    using Stretch = PlainStretch<WideDot>;
    static constexpr std::int64_t group = 2;
    static constexpr int vectors = Isa::vectors;
    static constexpr int rows_max = Isa::wide_rows_max;
    static constexpr int steps = 1;
    static constexpr bool is_wide = true;
    static constexpr std::int64_t stretch_bytes = vectors * Isa::lanes * 4;
    static constexpr std::int64_t scale_offset(std::int64_t in_features) { return in_features * 2; }

    [[gnu::always_inline]] static inline Weights load(const std::byte* from) {
        Weights x;
        __builtin_memcpy(&x, from, sizeof x);
        return x;
    }
    [[gnu::always_inline]] static inline Weights all(std::uint32_t pair) { return Isa::all_pairs(pair); }
    [[gnu::always_inline]] static inline void add(Sums& sums, Weights w, Weights x) { Isa::dot_pairs(sums, w, x); }
    [[gnu::always_inline]] static inline Sums ints(Sums sums) { return sums; }
    using Outputs = Int8Outputs<WideDot>;
};

// Multiplies panels of `Narrow`, which is an Int8Dot or an Int4Dot.
template <class Narrow>
struct WideMatmul {
    using Isa = typename Narrow::Isa;
    using Wide = WideDot<Isa>;
    using Products = DotMatmul<Wide>;

    static void widen_panel(const DotTask& task, const std::byte* weights) {
        constexpr std::int64_t vector_bytes = Isa::lanes * 4;
        std::byte* to = task.scratch;
        DotMatmul<Narrow>::each_bytes(
            task, weights, [&](int vector, const auto& bytes) __attribute__((always_inline)) {
                const auto wide = Isa::weights(bytes);
                __builtin_memcpy(to + vector * vector_bytes, &wide.even, sizeof wide.even);
                __builtin_memcpy(to + (Isa::vectors + vector) * vector_bytes, &wide.odd, sizeof wide.odd);
                if (vector + 1 == Isa::vectors) to += 2 * Isa::vectors * vector_bytes;
            });
    }

    static void matmul(const DotTask& task, std::int64_t panel_begin, std::int64_t panel_end) {
        DotTask wide = task;
        wide.in_features = int8_scale_offset(task.in_features);
        const std::int64_t panel_bytes = DotMatmul<Narrow>::stretches_of(task) * Narrow::stretch_bytes;
        for (std::int64_t panel = panel_begin; panel < panel_end; ++panel) {
            const std::byte* const weights = task.panels + panel * panel_bytes;
            const std::byte* const next = task.next == nullptr || panel + 1 < panel_end ? weights + panel_bytes : task.next;
            widen_panel(task, weights);
            Products::run_panel(wide, task.scratch, next, panel * Products::width);
        }
    }

    // Inputs after a row's last are zeroed, because they are multiplied with weights that, in int4, are not zero.
    static void widen(const std::byte* from, std::byte* to, std::int64_t size) {
        const std::int64_t whole = size / 4 * 4;
        for (std::int64_t i = 0; i < whole; i += 4) widen_four(from + i, to + i * 2, 0xFFFF'FFFFU);
        if (whole < size) widen_four(from + whole, to + whole * 2, 0xFFFF'FFFFU >> (whole + 4 - size) * 8);
        const std::int64_t scale = int8_scale_offset(size);
        __builtin_memcpy(to + scale * 2, from + scale, sizeof(float));
    }
    [[gnu::always_inline]] static inline void widen_four(const std::byte* from, std::byte* to, std::uint32_t mask) {
        std::uint32_t four;
        __builtin_memcpy(&four, from, sizeof four);
        four &= mask;
        const std::uint64_t wide = (four & 0x00FF00FFU) | std::uint64_t{four >> 8 & 0x00FF00FFU} << 32;
        __builtin_memcpy(to, &wide, sizeof wide);
    }

    static constexpr WideKernels table{.rows_least = Narrow::rows_max + 1, .widen = widen, .matmul = matmul};
};

}  // namespace lorry::kernels::cpu
