// AVX-512 with its conversion to bfloat16. Used only by kernels_avx512bf16.cpp and kernels_avx512amx.cpp, each of which gets a type of its
// own.
#pragma once

#include "kernels/cpu/simd/isa_avx512.h"

namespace lorry::kernels::cpu {

namespace {

struct Avx512Narrowing : Avx512 {
    [[gnu::always_inline]] static inline Vectors<lanes>::Halves narrowed(Floats x) {
        return reinterpret_cast<Vectors<lanes>::Halves>(_mm512_cvtneps_pbh(x));
    }
    // Lane by lane, `first` in the low half.
    [[gnu::always_inline]] static inline Vectors<lanes>::Bits paired(Floats first, Floats second) {
        const auto apart = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
        const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19,
                                               3, 18, 2, 17, 1, 16, 0);
        return reinterpret_cast<Vectors<lanes>::Bits>(_mm512_permutexvar_epi16(order, apart));
    }
};

}  // namespace

}  // namespace lorry::kernels::cpu
