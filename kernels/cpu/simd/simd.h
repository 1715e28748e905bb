// Vectors of floats, written once for every instruction set. Included only by the kernels and kernels/cpu/quantize.cpp.
//
// Kernels are templates over an instruction set `Isa` (isa_*.h), which defines the number of lanes and the few operations that GCC's
// generic vectors lack or compile badly. Files that include this one are compiled with different flags, so everything here and in the
// kernels is a template over Isa or always inlined, and no inline function of the standard library is used: otherwise the linker might keep
// the AVX-512 copy of a function that the scalar path calls as well.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lorry::kernels::cpu {

// A bfloat16 as stored in memory: the upper half of a float32.
using Bf16 = std::uint16_t;

// An array bound; consteval, so no copy of it is ever emitted.
consteval std::size_t extent(int count) { return static_cast<std::size_t>(count); }

template <int lane_count>
struct Vectors {
    typedef float Floats __attribute__((vector_size(lane_count * 4)));
    typedef std::int32_t Ints __attribute__((vector_size(lane_count * 4)));
    typedef std::uint32_t Bits __attribute__((vector_size(lane_count * 4)));
    typedef std::int64_t Longs __attribute__((vector_size(lane_count * 8)));
    typedef Bf16 Halves __attribute__((vector_size(lane_count * 2)));
    typedef std::int16_t Words __attribute__((vector_size(lane_count * 2)));
    typedef std::uint8_t Octets __attribute__((vector_size(lane_count)));
    typedef std::int8_t Bytes __attribute__((vector_size(lane_count)));
};

template <class Isa>
struct Simd {
    static constexpr int lanes = Isa::lanes;
    static constexpr std::size_t width = extent(Isa::lanes);  // as an array bound
    using Floats = typename Vectors<lanes>::Floats;
    using Ints = typename Vectors<lanes>::Ints;
    using Bits = typename Vectors<lanes>::Bits;
    using Halves = typename Vectors<lanes>::Halves;

    [[gnu::always_inline]] static inline Floats all(float x) { return x - Floats{}; }
    [[gnu::always_inline]] static inline Ints all(std::int32_t x) { return x - Ints{}; }
    [[gnu::always_inline]] static inline Floats fma(Floats a, Floats b, Floats c) { return Isa::fma(a, b, c); }

    [[gnu::always_inline]] static inline Floats load(const float* from) {
        Floats x;
        __builtin_memcpy(&x, from, sizeof x);
        return x;
    }
    [[gnu::always_inline]] static inline Floats load(const Bf16* from) { return Isa::load_bf16(from); }
    [[gnu::always_inline]] static inline void store(float* to, Floats x) { __builtin_memcpy(to, &x, sizeof x); }
    // Rounds to the nearest bfloat16, ties to even; keeps NaN. Denormals (below 1.2e-38) may become zero.
    [[gnu::always_inline]] static inline void store(Bf16* to, Floats x) {
        const Halves halves = narrowed(x);
        __builtin_memcpy(to, &halves, sizeof halves);
    }

    // As store(Bf16*) rounds.
    [[gnu::always_inline]] static inline Halves narrowed(Floats x) {
        if constexpr (requires { Isa::narrowed(x); }) {
            return Isa::narrowed(x);
        } else {
            Bits bits;
            __builtin_memcpy(&bits, &x, sizeof x);
            const Bits rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
            const Bits quiet = (bits >> 16) | 0x40U;
            return __builtin_convertvector(x == x ? rounded : quiet, Halves);
        }
    }

    // The first `count` lanes; the others are zero and are not read.
    [[gnu::always_inline]] static inline Floats load_part(const float* from, std::int64_t count) {
        float part[width] = {};
        for (std::int64_t i = 0; i < count; ++i) part[i] = from[i];
        return load(part);
    }
    template <class Storage>
    [[gnu::always_inline]] static inline void store_part(Storage* to, Floats x, std::int64_t count) {
        Storage part[width];
        store(part, x);
        for (std::int64_t i = 0; i < count; ++i) to[i] = part[i];
    }

    // Loads or stores min(count, lanes) lanes.
    [[gnu::always_inline]] static inline Floats load_up_to(const float* from, std::int64_t count) {
        return count >= lanes ? load(from) : load_part(from, count);
    }
    template <class Storage>
    [[gnu::always_inline]] static inline void store_up_to(Storage* to, Floats x, std::int64_t count) {
        if (count >= lanes) [[likely]] {
            store(to, x);
        } else {
            store_part(to, x, count);
        }
    }

    // Gives b where either is NaN.
    [[gnu::always_inline]] static inline Floats larger(Floats a, Floats b) {
        if constexpr (requires { Isa::larger(a, b); }) {
            return Isa::larger(a, b);
        } else {
            return a > b ? a : b;
        }
    }
    [[gnu::always_inline]] static inline Floats smaller(Floats a, Floats b) {
        if constexpr (requires { Isa::smaller(a, b); }) {
            return Isa::smaller(a, b);
        } else {
            return a < b ? a : b;
        }
    }
    [[gnu::always_inline]] static inline Ints larger(Ints a, Ints b) { return a > b ? a : b; }
    [[gnu::always_inline]] static inline Ints magnitude_bits(Floats x) {
        Ints bits;
        __builtin_memcpy(&bits, &x, sizeof x);
        return bits & 0x7FFF'FFFF;
    }
    [[gnu::always_inline]] static inline Floats magnitude(Floats x) {
        const Ints bits = magnitude_bits(x);
        __builtin_memcpy(&x, &bits, sizeof x);
        return x;
    }

    // 1.5 * 2^23: added to a number of up to 2^22, it leaves the nearest integer in the low bits.
    static constexpr float integer_bits = 12582912.0F;

    // The sum of the lanes, always in the same order: halves are added until one lane is left.
    [[gnu::always_inline]] static inline float sum(Floats x) {
        return fold<lanes / 2>(
            x, [](Floats a, Floats b) __attribute__((always_inline)) { return a + b; });
    }
    // The largest lane; none may be NaN.
    [[gnu::always_inline]] static inline float largest(Floats x) {
        return fold<lanes / 2>(
            x, [](Floats a, Floats b) __attribute__((always_inline)) { return larger(a, b); });
    }
    [[gnu::always_inline]] static inline std::int32_t largest(Ints x) {
        return fold<lanes / 2>(
            x, [](Ints a, Ints b) __attribute__((always_inline)) { return larger(a, b); });
    }
    // 0, 1, 2, … in the lanes.
    [[gnu::always_inline]] static inline Ints ramp() {
        std::int32_t part[width];
        for (int i = 0; i < lanes; ++i) part[i] = i;
        Ints x;
        __builtin_memcpy(&x, part, sizeof x);
        return x;
    }

private:
    // Combines lanes [0, half) with lanes [half, 2 * half), and so on. The shuffle keeps the lanes in their registers.
    template <int half, class Vector, class Combine>
    [[gnu::always_inline]] static inline auto fold(Vector x, const Combine& combine) {
        const Vector combined = combine(x, __builtin_shuffle(x, (ramp() + half) & (lanes - 1)));
        if constexpr (half == 1) {
            return combined[0];
        } else {
            return fold<half / 2>(combined, combine);
        }
    }
};

// sqrtf without <cmath>: one instruction on every x86-64.
template <class Isa>
[[gnu::always_inline]] inline float square_root(float x) {
    return __builtin_sqrtf(x);
}

}  // namespace lorry::kernels::cpu
