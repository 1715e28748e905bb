// The 8 lanes of AVX2 with FMA. Used only by kernels_avx2.cpp and int8_avx2.cpp, each of which gets a type of its own.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

namespace {

struct Avx2 {
    static constexpr int lanes = 8;
    static constexpr int registers = 16;
    using Floats = Vectors<lanes>::Floats;
    using Ints = Vectors<lanes>::Ints;

    [[gnu::always_inline]] static inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
    [[gnu::always_inline]] static inline Floats load_bf16(const Bf16* from) {
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
    }
    // Widens `lanes` bytes; g++ 12 generates poor code for the generic conversion.
    [[gnu::always_inline]] static inline Ints widened(const std::byte* from) {
        return reinterpret_cast<Ints>(_mm256_cvtepu8_epi32(_mm_loadu_si64(from)));
    }
    [[gnu::always_inline]] static inline Ints sign_extended(const std::byte* from) {
        return reinterpret_cast<Ints>(_mm256_cvtepi8_epi32(_mm_loadu_si64(from)));
    }
    [[gnu::always_inline]] static inline bool any(Ints mask) { return _mm256_movemask_epi8(reinterpret_cast<__m256i>(mask)) != 0; }
};

}  // namespace

}  // namespace lorry::kernels::cpu
