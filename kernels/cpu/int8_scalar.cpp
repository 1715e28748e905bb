// int8 and int4 sums on any machine.
#include "kernels/cpu/int8_dot.h"

namespace lorry::kernels::cpu {

namespace {

struct Scalar {
    static constexpr int lanes = 4;
    static constexpr int vectors = 4;
    static constexpr int rows_max = 2;
    using Sums = Vectors<lanes>::Ints;
    struct Weights {
        std::int8_t bytes[extent(lanes * 4)];
    };
    struct Inputs {
        std::uint8_t bytes[4];
    };

    [[gnu::always_inline]] static inline Weights weights(Vectors<lanes * 4>::Octets bytes) {
        Weights x;
        __builtin_memcpy(&x, &bytes, sizeof x);
        return x;
    }
    // `lanes` bytes, each in 32 bits.
    [[gnu::always_inline]] static inline Sums widened(const std::byte* from) {
        Sums x;
        for (int lane = 0; lane < lanes; ++lane) x[lane] = static_cast<int>(from[lane]);
        return x;
    }
    [[gnu::always_inline]] static inline Inputs all(std::uint32_t four) {
        Inputs x;
        __builtin_memcpy(&x, &four, sizeof x);
        return x;
    }
    [[gnu::always_inline]] static inline void dot(Sums& sums, const Weights& w, const Inputs& x) {
        for (int lane = 0; lane < lanes; ++lane) {
            for (int i = 0; i < 4; ++i) sums[lane] += w.bytes[lane * 4 + i] * x.bytes[i];
        }
    }
    [[gnu::always_inline]] static inline Sums ints(Sums sums) { return sums; }
};

}  // namespace

const DotKernels& scalar_int4_kernels() { return DotMatmul<Int4Dot<Scalar>>::table; }

}  // namespace lorry::kernels::cpu
