// int8 and int4 sums, and attention over an int8 cache, for any machine. Called by isa.cpp.
#include "kernels/cpu/simd/int8_attention.h"
#include "kernels/cpu/simd/int8_dot.h"
#include "kernels/cpu/simd/int8_lanes.h"
#include "kernels/cpu/simd/isa_scalar.h"

namespace lorry::kernels::cpu {

namespace {

struct Int8Scalar : Int8Lanes<Scalar> {
    static constexpr int vectors = 4;
    static constexpr int rows_max = 2;

    struct Pairs {
        std::int16_t halves[extent(lanes * 2)];
    };
    [[gnu::always_inline]] static inline Pairs widened_pairs(const std::byte* from) {
        Pairs x;
        for (int i = 0; i < lanes * 2; ++i) x.halves[i] = static_cast<std::int8_t>(from[i]);
        return x;
    }
    [[gnu::always_inline]] static inline Pairs all_pairs(std::uint32_t pair) {
        Pairs x;
        for (int lane = 0; lane < lanes; ++lane) __builtin_memcpy(x.halves + lane * 2, &pair, sizeof pair);
        return x;
    }
    [[gnu::always_inline]] static inline void dot_pairs(Ints& sums, const Pairs& v, const Pairs& w) {
        for (int lane = 0; lane < lanes; ++lane) {
            for (int i = 0; i < 2; ++i) sums[lane] += v.halves[lane * 2 + i] * w.halves[lane * 2 + i];
        }
    }
};

}  // namespace

const DotKernels& scalar_int4_kernels() { return DotMatmul<Int4Dot<Int8Scalar>>::table; }

const Int8AttentionKernel& scalar_int8_attention() { return Int8Attention<Int8Scalar>::table; }

}  // namespace lorry::kernels::cpu
