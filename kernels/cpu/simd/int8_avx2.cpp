// int8 and int4 sums, and attention over an int8 cache, with AVX2. The byte instruction of AVX2 saturates, so products are of 16 bits: of
// the first and third of four bytes, and of the second and fourth, because shifts and masks then widen them. Called by isa.cpp.
#include "kernels/cpu/simd/int8_attention.h"
#include "kernels/cpu/simd/int8_dot.h"
#include "kernels/cpu/simd/isa_avx2.h"
#include "kernels/cpu/simd/wide_dot.h"

namespace lorry::kernels::cpu {

namespace {

struct Int8Avx2 : Avx2 {
    static constexpr int vectors = 2;
    static constexpr int rows_max = 4;
    static constexpr int wide_rows_max = 6;
    using Sums = Ints;
    struct Weights {  // 16 bits each
        __m256i even;
        __m256i odd;
    };
    using Inputs = Weights;

    [[gnu::always_inline]] static inline Weights weights(Vectors<lanes * 4>::Octets bytes) {
        const auto fours = reinterpret_cast<__m256i>(bytes);
        return {_mm256_srai_epi16(_mm256_slli_epi16(fours, 8), 8), _mm256_srai_epi16(fours, 8)};
    }
    [[gnu::always_inline]] static inline Inputs all(std::uint32_t four) {
        const __m256i fours = _mm256_set1_epi32(static_cast<int>(four));
        return {_mm256_and_si256(fours, _mm256_set1_epi16(0xFF)), _mm256_srli_epi16(fours, 8)};
    }
    [[gnu::always_inline]] static inline void dot(Sums& sums, Weights w, Inputs x) {
        dot_pairs(sums, w.even, x.even);
        dot_pairs(sums, w.odd, x.odd);
    }
    [[gnu::always_inline]] static inline Ints ints(Sums sums) { return sums; }

    using Pairs = __m256i;
    [[gnu::always_inline]] static inline Pairs widened_pairs(const std::byte* from) {
        return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
    [[gnu::always_inline]] static inline Pairs all_pairs(std::uint32_t pair) { return _mm256_set1_epi32(static_cast<int>(pair)); }
    [[gnu::always_inline]] static inline void dot_pairs(Ints& sums, Pairs v, Pairs w) {
        sums = reinterpret_cast<Ints>(_mm256_add_epi32(reinterpret_cast<__m256i>(sums), _mm256_madd_epi16(v, w)));
    }
};

}  // namespace

const DotKernels& avx2_int4_kernels() { return DotMatmul<Int4Dot<Int8Avx2>>::table; }

const Int8AttentionKernel& avx2_int8_attention() { return Int8Attention<Int8Avx2>::table; }

}  // namespace lorry::kernels::cpu
