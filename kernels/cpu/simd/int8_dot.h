// Sums of int8 products in int32, which are exact, so every instruction set gives the same bits. Inputs are stored plus 128, because the
// processor multiplies unsigned with signed bytes; what the 128 adds to an output is computed when its weights are packed (offsets).
// Int4Dot does the same for weights that take half the memory. Instantiated by int8_*.cpp and kernels_avx512amx.cpp over an Isa that
// provides the products.
#pragma once

#include "kernels/cpu/simd/dot_matmul.h"

namespace lorry::kernels::cpu {

// Computes a panel's outputs from the sums of a row. Dot says where a row's scale is and how sums become integers.
template <class Dot>
class Int8Outputs {
    using V = Simd<typename Dot::Isa>;

public:
    [[gnu::always_inline]] Int8Outputs(const DotTask& task, std::int64_t column) {
        __builtin_memcpy(offsets_, task.offsets + column, sizeof offsets_);
        __builtin_memcpy(scales_, task.scales + column, sizeof scales_);
    }
    template <class Sums>
    [[gnu::always_inline]] typename V::Floats value(const DotTask& task, std::int64_t row, int vector, Sums sums) const {
        float scale;
        __builtin_memcpy(&scale, task.in + row * task.in_stride + Dot::scale_offset(task.in_features), sizeof scale);
        return __builtin_convertvector(Dot::ints(sums) + offsets_[vector], typename V::Floats) * scales_[vector] * scale;
    }

private:
    typename V::Ints offsets_[extent(Dot::vectors)];
    typename V::Floats scales_[extent(Dot::vectors)];
};

template <class IsaOfDot>
struct Int8Dot {
    using Isa = IsaOfDot;
    using Sums = typename Isa::Sums;
    using Weights = typename Isa::Weights;
    using Bytes = typename Vectors<Isa::lanes * 4>::Octets;
    using Stretch = PlainStretch<Int8Dot>;
    static constexpr const char* name = "int8";
    static constexpr Storage storage = Storage::int8;
    static constexpr std::int64_t group = 4;
    static constexpr int vectors = Isa::vectors;
    static constexpr int rows_max = Isa::rows_max;
    static constexpr int steps = 1;
    static constexpr std::int64_t stretch_bytes = vectors * Isa::lanes * 4;

    [[gnu::always_inline]] static inline Weights load(const std::byte* from) {
        Bytes bytes;
        __builtin_memcpy(&bytes, from, sizeof bytes);
        return Isa::weights(bytes);
    }
    [[gnu::always_inline]] static inline auto all(std::uint32_t four) { return Isa::all(four); }
    template <class Inputs>
    [[gnu::always_inline]] static inline void add(Sums& sums, Weights w, Inputs x) {
        Isa::dot(sums, w, x);
    }
    [[gnu::always_inline]] static inline typename Isa::Ints ints(Sums sums) { return Isa::ints(sums); }
    static constexpr std::int64_t scale_offset(std::int64_t in_features) { return int8_scale_offset(in_features); }
    using Outputs = Int8Outputs<Int8Dot>;
};

// kernels.h describes the layout of a stretch.
template <class Isa>
struct Int4Dot : Int8Dot<Isa> {
    using Unpacked = Int8Dot<Isa>;
    using typename Unpacked::Bytes;
    using typename Unpacked::Weights;
    using Unpacked::vectors;
    using Bits = typename Vectors<Isa::lanes>::Bits;
    using Pairs = typename Vectors<Isa::lanes * 2>::Halves;
    static constexpr const char* name = "int4";
    static constexpr Storage storage = Storage::int4;
    static constexpr int steps = int4_stretch / 4;
    static constexpr std::int64_t stretch_bytes = int4_stretch_bytes(vectors * Isa::lanes);

    class Stretch {
    public:
        [[gnu::always_inline]] explicit Stretch(const std::byte* from) : nibbles_(from + vectors * Isa::lanes) {
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) {
                const auto both = reinterpret_cast<Bits>(Isa::widened(from + i * Isa::lanes));
                const Bits factor = both & 0xFU;
                factors_[i] = factor * 0x10001U;
                zeros_[i] = (both >> 4) * factor * 0x1010101U;
            }
        }
        // Four int8 for each output of a vector. nibble * factor is at most 225, so bytes can be multiplied in pairs.
        [[gnu::always_inline]] Bytes bytes(int step, int vector) const {
            Bits nibbles;
            __builtin_memcpy(&nibbles, nibbles_ + (step / 2 * vectors + vector) * Isa::lanes * 4, sizeof nibbles);
            nibbles = (step % 2 == 0 ? nibbles : nibbles >> 4) & 0xF0F0F0FU;
            const Pairs products = reinterpret_cast<Pairs>(nibbles) * reinterpret_cast<Pairs>(factors_[vector]);
            return reinterpret_cast<Bytes>(products) - reinterpret_cast<Bytes>(zeros_[vector]);
        }
        [[gnu::always_inline]] Weights weights(int step, int vector) const { return Isa::weights(bytes(step, vector)); }

    private:
        const std::byte* nibbles_;
        Bits factors_[extent(vectors)];  // the factor, in both halves of an output's 4 bytes
        Bits zeros_[extent(vectors)];    // zero * factor, in each of its bytes
    };
};

}  // namespace lorry::kernels::cpu
