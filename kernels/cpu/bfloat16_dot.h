// Sums of products of bfloat16 pairs in float32, as vdpbf16ps does them: the second product first, each multiply-add rounded once,
// denormal numbers taken for zero. Instantiated over an Isa that has dot(sums, weights, inputs), and how many vectors wide a panel is.
#pragma once

#include "kernels/cpu/dot_matmul.h"

namespace lorry::kernels::cpu {

template <class IsaOfDot, int panel_vectors>
struct Bfloat16Dot {
    using Isa = IsaOfDot;
    using Sums = typename Vectors<Isa::lanes>::Floats;
    using Weights = typename Isa::Pairs;
    using Stretch = PlainStretch<Bfloat16Dot>;
    static constexpr const char* name = "bfloat16";
    static constexpr Storage storage = Storage::bfloat16;
    static constexpr std::int64_t group = 2;
    static constexpr int vectors = panel_vectors;
    static constexpr int rows_max = 8;
    static constexpr int steps = 1;
    static constexpr std::int64_t stretch_bytes = vectors * Isa::lanes * 4;

    [[gnu::always_inline]] static inline Weights load(const std::byte* from) {
        Weights x;
        __builtin_memcpy(&x, from, sizeof x);
        return x;
    }
    [[gnu::always_inline]] static inline Weights all(std::uint32_t pair) { return Isa::all_pairs(pair); }
    [[gnu::always_inline]] static inline void add(Sums& sums, Weights w, Weights x) { sums = Isa::dot(sums, w, x); }
    struct Outputs {
        Outputs(const DotTask&, std::int64_t) {}
        [[gnu::always_inline]] Sums value(const DotTask&, std::int64_t, int, Sums sums) const { return sums; }
    };
};

}  // namespace lorry::kernels::cpu
