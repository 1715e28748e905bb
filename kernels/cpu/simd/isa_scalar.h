// Four lanes, which the compiler implements with baseline instructions. Used only by kernels_scalar.cpp and int8_scalar.cpp, each of which
// gets a type of its own.
#pragma once

#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

namespace {

struct Scalar {
    static constexpr int lanes = 4;
    static constexpr int registers = 16;
    using Floats = Vectors<lanes>::Floats;
    using Ints = Vectors<lanes>::Ints;

    [[gnu::always_inline]] static inline Floats fma(Floats a, Floats b, Floats c) { return a * b + c; }
    [[gnu::always_inline]] static inline Floats load_bf16(const Bf16* from) {
        const Vectors<lanes>::Bits bits = Vectors<lanes>::Bits{from[0], from[1], from[2], from[3]} << 16;
        Floats x;
        __builtin_memcpy(&x, &bits, sizeof x);
        return x;
    }
    // Widens `lanes` bytes.
    [[gnu::always_inline]] static inline Ints widened(const std::byte* from) {
        Ints x;
        for (int i = 0; i < lanes; ++i) x[i] = static_cast<std::int32_t>(from[i]);
        return x;
    }
    [[gnu::always_inline]] static inline bool any(Ints mask) { return (mask[0] | mask[1] | mask[2] | mask[3]) != 0; }
};

}  // namespace

}  // namespace lorry::kernels::cpu
