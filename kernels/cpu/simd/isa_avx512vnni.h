// AVX-512 with VNNI. Used only by int8_avx512vnni.cpp and kernels_avx512amx.cpp, each of which gets a type of its own.
#pragma once

#include "kernels/cpu/simd/isa_avx512.h"

namespace lorry::kernels::cpu {

namespace {

struct Int8Avx512 : Avx512 {
    static constexpr int vectors = 3;
    static constexpr int rows_max = 8;
    using Sums = __m512i;
    using Weights = __m512i;
    using Inputs = __m512i;

    [[gnu::always_inline]] static inline Weights weights(Vectors<lanes * 4>::Octets bytes) { return reinterpret_cast<Weights>(bytes); }
    [[gnu::always_inline]] static inline Inputs all(std::uint32_t four) { return _mm512_set1_epi32(static_cast<int>(four)); }
    // Assembly, because the intrinsics make g++ 12 spill the sums.
    [[gnu::always_inline]] static inline void dot(Sums& sums, Weights w, Inputs x) {
        asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(x), "v"(w));
    }
    [[gnu::always_inline]] static inline Ints ints(Sums sums) { return reinterpret_cast<Ints>(sums); }

    using Pairs = __m512i;
    [[gnu::always_inline]] static inline Pairs widened_pairs(const std::byte* from) {
        return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    }
    [[gnu::always_inline]] static inline Pairs all_pairs(std::uint32_t pair) { return _mm512_set1_epi32(static_cast<int>(pair)); }
    [[gnu::always_inline]] static inline void dot_pairs(Ints& sums, Pairs v, Pairs w) {
        asm("vpdpwssd %2, %1, %0" : "+v"(sums) : "v"(v), "v"(w));
    }
};

}  // namespace

}  // namespace lorry::kernels::cpu
