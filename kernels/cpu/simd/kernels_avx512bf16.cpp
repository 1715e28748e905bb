// The kernels for AVX-512 with BF16: those of AVX-512, plus sums of bfloat16 products. Compiled with these flags; isa.cpp calls them only
// if the processor supports them, and by default only on chips where they are faster.
#include <immintrin.h>

// g++ 12 mistakes the undefined operand inside its own AVX-512 intrinsics for an uninitialized variable.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "kernels/cpu/simd/isa_avx512bf16.h"
#include "kernels/cpu/simd/table.h"

namespace lorry::kernels::cpu {

namespace {

struct Avx512Bf16 : Avx512Narrowing {
    static constexpr bool multiplies_subnormals = true;  // in a few cycles more than others, on Zen 4
    using Pairs = __m512i;
    [[gnu::always_inline]] static inline Pairs all_pairs(std::uint32_t pair) { return _mm512_set1_epi32(static_cast<int>(pair)); }
    [[gnu::always_inline]] static inline Floats dot(Floats sums, Pairs w, Pairs x) {
        return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
    }
};

constexpr Kernels table = table_of<Avx512Bf16>("avx512bf16");

}  // namespace

const Kernels& avx512bf16_kernels() { return table; }

}  // namespace lorry::kernels::cpu
