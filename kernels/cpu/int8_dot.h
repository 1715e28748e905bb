// Sums of products of int8 in int32, which are exact: every instruction set gives the same bits. Inputs are stored plus 128, because the
// processor multiplies unsigned with signed bytes; what the 128 adds to an output is known when its weights are packed (offsets).
// Instantiated by int8_*.cpp over an Isa that has dot(sums, weights, inputs).
#pragma once

#include "kernels/cpu/dot_matmul.h"

namespace lorry::kernels::cpu {

template <class IsaOfDot>
struct Int8Dot {
    using Isa = IsaOfDot;
    using V = Simd<Isa>;
    using Sums = typename Isa::Sums;
    using Weights = typename Isa::Weights;
    static constexpr const char* name = "int8";
    static constexpr std::int64_t group = 4;
    static constexpr int vectors = Isa::vectors;
    static constexpr int rows_max = Isa::rows_max;

    [[gnu::always_inline]] static inline Weights load(const std::byte* from) { return Isa::load(from); }
    [[gnu::always_inline]] static inline auto all(std::uint32_t four) { return Isa::all(four); }
    template <class Inputs>
    [[gnu::always_inline]] static inline void add(Sums& sums, Weights w, Inputs x) {
        Isa::dot(sums, w, x);
    }
    [[gnu::always_inline]] static inline typename V::Floats value(const DotTask& task, std::int64_t row, std::int64_t column, Sums sums) {
        typename V::Ints offset;
        __builtin_memcpy(&offset, task.offsets + column, sizeof offset);
        float scale;
        __builtin_memcpy(&scale, task.in + row * task.in_stride + int8_scale_offset(task.in_features), sizeof scale);
        return __builtin_convertvector(Isa::ints(sums) + offset, typename V::Floats) * V::load(task.scales + column) * scale;
    }
};

}  // namespace lorry::kernels::cpu
