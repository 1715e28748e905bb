// Sums of int8 products, lane by lane, for vectors of any width: what int8_dot.h needs from an instruction set that has no instruction for
// them. Used by int8_scalar.cpp and by the emulated AVX-512 of the tests.
#pragma once

#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct Int8Lanes : Isa {
    static constexpr int lanes = Isa::lanes;
    using Ints = typename Isa::Ints;
    using Sums = Ints;
    struct Weights {
        std::int8_t bytes[extent(lanes * 4)];
    };
    struct Inputs {
        std::uint8_t bytes[4];
    };

    [[gnu::always_inline]] static inline Weights weights(typename Vectors<lanes * 4>::Octets bytes) {
        Weights x;
        __builtin_memcpy(&x, &bytes, sizeof x);
        return x;
    }
    [[gnu::always_inline]] static inline Inputs all(std::uint32_t four) {
        Inputs x;
        __builtin_memcpy(&x, &four, sizeof x);
        return x;
    }
    [[gnu::always_inline]] static inline void dot(Sums& sums, const Weights& w, const Inputs& x) {
        for (int lane = 0; lane < lanes; ++lane) {
            for (int i = 0; i < 4; ++i) sums[lane] += w.bytes[lane * 4 + i] * x.bytes[i];
        }
    }
    [[gnu::always_inline]] static inline Ints ints(Sums sums) { return sums; }
};

}  // namespace lorry::kernels::cpu
