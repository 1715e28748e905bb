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
    // The lanes of `low`, then those of `high`.
    [[gnu::always_inline]] static inline Vectors<lanes>::Bits narrowed(Floats low, Floats high) {
        return reinterpret_cast<Vectors<lanes>::Bits>(_mm512_cvtne2ps_pbh(high, low));
    }
};

}  // namespace

}  // namespace lorry::kernels::cpu
