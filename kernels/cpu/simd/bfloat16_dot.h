// Sums of products of bfloat16 pairs in float32. Denormals count as zero, and each multiply-add is rounded once. Bfloat16Dot works like
// vdpbf16ps, the second product first, over an Isa that has dot(sums, weights, inputs). Bfloat16Panels only describes the panels, for tile
// kernels. Instantiated by table.h, with a panel's width in vectors.
#pragma once

#include "kernels/cpu/simd/dot_matmul.h"

namespace lorry::kernels::cpu {

template <class IsaOfDot, int panel_vectors>
struct Bfloat16Panels {
    using Isa = IsaOfDot;
    using Sums = typename Vectors<Isa::lanes>::Floats;
    static constexpr const char* name = "bfloat16";
    static constexpr Storage storage = Storage::bfloat16;
    static constexpr std::int64_t group = 2;
    static constexpr int vectors = panel_vectors;
    struct Outputs {
        Outputs(const DotTask&, std::int64_t) {}
        [[gnu::always_inline]] Sums value(const DotTask&, std::int64_t, int, Sums sums) const { return sums; }
    };
};

template <class Isa, int vectors>
struct Bfloat16Dot : Bfloat16Panels<Isa, vectors> {
    using typename Bfloat16Panels<Isa, vectors>::Sums;
    using Weights = typename Isa::Pairs;
    using Stretch = PlainStretch<Bfloat16Dot>;
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
};

}  // namespace lorry::kernels::cpu
