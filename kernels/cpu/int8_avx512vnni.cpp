// int8 and int4 sums with AVX-512 VNNI: four products and their sum in one instruction.
#include <immintrin.h>

// g++ 12 takes the undefined operand inside its own AVX-512 intrinsics for a use of an uninitialized variable.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "kernels/cpu/int8_dot.h"

namespace lorry::kernels::cpu {

namespace {

struct Avx512Vnni {
    static constexpr int lanes = 16;
    static constexpr int vectors = 3;
    static constexpr int rows_max = 8;
    using Sums = __m512i;
    using Weights = __m512i;
    using Inputs = __m512i;

    [[gnu::always_inline]] static inline Weights weights(Vectors<lanes * 4>::Octets bytes) { return reinterpret_cast<Weights>(bytes); }
    // `lanes` bytes, each in 32 bits: g++ 12 has no good code of its own for it.
    [[gnu::always_inline]] static inline __m512i widened(const std::byte* from) {
        return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
    [[gnu::always_inline]] static inline Inputs all(std::uint32_t four) { return _mm512_set1_epi32(static_cast<int>(four)); }
    // The intrinsic makes g++ 12 spill the sums.
    [[gnu::always_inline]] static inline void dot(Sums& sums, Weights w, Inputs x) {
        asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(x), "v"(w));
    }
    [[gnu::always_inline]] static inline Vectors<lanes>::Ints ints(Sums sums) { return reinterpret_cast<Vectors<lanes>::Ints>(sums); }
};

}  // namespace

const DotKernels& avx512vnni_int4_kernels() { return DotMatmul<Int4Dot<Avx512Vnni>>::table; }

}  // namespace lorry::kernels::cpu
