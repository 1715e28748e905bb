// int8 sums with AVX-512 VNNI: four products and their sum in one instruction.
#include <immintrin.h>

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

    [[gnu::always_inline]] static inline Weights load(const std::byte* from) { return _mm512_loadu_si512(from); }
    [[gnu::always_inline]] static inline Inputs all(std::uint32_t four) { return _mm512_set1_epi32(static_cast<int>(four)); }
    // The intrinsic makes g++ 12 spill the sums.
    [[gnu::always_inline]] static inline void dot(Sums& sums, Weights w, Inputs x) {
        asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(x), "v"(w));
    }
    [[gnu::always_inline]] static inline Vectors<lanes>::Ints ints(Sums sums) { return reinterpret_cast<Vectors<lanes>::Ints>(sums); }
};

}  // namespace

const DotKernels& avx512vnni_int8_kernels() { return DotMatmul<Int8Dot<Avx512Vnni>>::table; }

}  // namespace lorry::kernels::cpu
