// int8 and int4 sums, and attention over an int8 cache, with AVX2. Its own instruction for bytes saturates, so products are made of 16
// bits, and the two halves of a group are added up at the end.
#include "kernels/cpu/int8_attention.h"
#include "kernels/cpu/int8_dot.h"
#include "kernels/cpu/isa_avx2.h"

namespace lorry::kernels::cpu {

namespace {

struct Int8Avx2 : Avx2 {
    static constexpr int vectors = 2;
    static constexpr int rows_max = 2;
    struct Sums {  // of outputs 0 … 3 and 4 … 7, two for each
        __m256i low;
        __m256i high;
    };
    using Weights = Sums;  // 16 bits each
    using Inputs = __m256i;

    [[gnu::always_inline]] static inline Weights weights(Vectors<lanes * 4>::Octets bytes) {
        const auto both = reinterpret_cast<__m256i>(bytes);
        return {_mm256_cvtepi8_epi16(_mm256_castsi256_si128(both)), _mm256_cvtepi8_epi16(_mm256_extracti128_si256(both, 1))};
    }
    [[gnu::always_inline]] static inline Inputs all(std::uint32_t four) {
        return _mm256_cvtepu8_epi16(_mm_set1_epi32(static_cast<int>(four)));
    }
    [[gnu::always_inline]] static inline void dot(Sums& sums, Weights w, Inputs x) {
        sums.low = _mm256_add_epi32(sums.low, _mm256_madd_epi16(w.low, x));
        sums.high = _mm256_add_epi32(sums.high, _mm256_madd_epi16(w.high, x));
    }
    [[gnu::always_inline]] static inline Ints ints(Sums sums) {
        return reinterpret_cast<Ints>(_mm256_permute4x64_epi64(_mm256_hadd_epi32(sums.low, sums.high), 0b11011000));
    }

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
