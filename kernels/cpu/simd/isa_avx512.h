// The 16 lanes of AVX-512 (F, BW, VL, DQ). Used only by kernels_avx512*.cpp and isa_avx512vnni.h, each of which gets a type of its own.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

namespace {

struct Avx512 {
    static constexpr int lanes = 16;
    static constexpr int registers = 32;
    using Floats = Vectors<lanes>::Floats;
    using Ints = Vectors<lanes>::Ints;

    [[gnu::always_inline]] static inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
    // Masked with all lanes: g++ 12 warns about the undefined operand of the unmasked intrinsics.
    [[gnu::always_inline]] static inline Floats larger(Floats a, Floats b) { return _mm512_maskz_max_ps(0xFFFF, a, b); }
    [[gnu::always_inline]] static inline Floats smaller(Floats a, Floats b) { return _mm512_maskz_min_ps(0xFFFF, a, b); }
    [[gnu::always_inline]] static inline Floats load_bf16(const Bf16* from) {
        const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
    [[gnu::always_inline]] static inline Floats load_float16(const std::byte* from) {
        return _mm512_maskz_cvtph_ps(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    }
    // Widens `lanes` bytes; g++ 12 generates poor code for the generic conversion.
    [[gnu::always_inline]] static inline Ints widened(const std::byte* from) {
        return reinterpret_cast<Ints>(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
    }
    [[gnu::always_inline]] static inline Ints sign_extended(const std::byte* from) {
        return reinterpret_cast<Ints>(_mm512_maskz_cvtepi8_epi32(0xFFFF, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
    }
    [[gnu::always_inline]] static inline Vectors<lanes * 2>::Words sign_extended_words(const std::byte* from) {
        const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
        return reinterpret_cast<Vectors<lanes * 2>::Words>(_mm512_cvtepi8_epi16(bytes));
    }
    // g++ 12 takes the lookup in two registers for the generic shuffle, and two instructions more for the generic comparison.
    using Words = Vectors<lanes * 2>::Halves;
    [[gnu::always_inline]] static inline Words looked_up(const Words& table, Words index) {
        constexpr __mmask32 all = 0xFFFF'FFFF;
        return reinterpret_cast<Words>(
            _mm512_maskz_permutexvar_epi16(all, reinterpret_cast<__m512i>(index), reinterpret_cast<__m512i>(table)));
    }
    // x + added in the words that have some of these bits.
    [[gnu::always_inline]] static inline Words added_where(Words x, Words added, short bits) {
        const auto to = reinterpret_cast<__m512i>(x);
        const __mmask32 chosen = _mm512_test_epi16_mask(to, _mm512_set1_epi16(bits));
        return reinterpret_cast<Words>(_mm512_mask_add_epi16(to, chosen, to, reinterpret_cast<__m512i>(added)));
    }
    [[gnu::always_inline]] static inline bool any(Ints mask) { return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask)) != 0; }
};

}  // namespace

}  // namespace lorry::kernels::cpu
