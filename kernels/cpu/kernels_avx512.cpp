// The kernels for AVX-512 (F, BW, VL, DQ): 16 lanes. Compiled with those flags; called only after isa.cpp found them.
#include <immintrin.h>

// g++ 12 takes the undefined operand inside its own AVX-512 intrinsics for a use of an uninitialized variable.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "kernels/cpu/table.h"

namespace lorry::kernels::cpu {

namespace {

struct Avx512 {
    static constexpr int lanes = 16;
    static constexpr int registers = 32;
    using Floats = Vectors<lanes>::Floats;
    using Ints = Vectors<lanes>::Ints;

    [[gnu::always_inline]] static inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
    [[gnu::always_inline]] static inline Floats load_bf16(const Bf16* from) {
        const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
    [[gnu::always_inline]] static inline bool any(Ints mask) { return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask)) != 0; }
};

constexpr Kernels table = table_of<Avx512>("avx512");

}  // namespace

const Kernels& avx512_kernels() { return table; }

}  // namespace lorry::kernels::cpu
