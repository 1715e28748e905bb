// Instantiates the 16-lane kernels under AVX2 flags; see devices.h. Slow, but the same logic.
// Vectors wider than the registers are passed in memory: within this file that is consistent.
#pragma GCC diagnostic ignored "-Wpsabi"

#include "kernels/cpu/table.h"

namespace lorry::kernels::testing {

using namespace cpu;

// The same as devices.h declares; its headers do not belong in a file with these flags.
const cpu::Kernels& emulated_avx512_kernels();

namespace {

struct Emulated {
    static constexpr int lanes = 16;
    static constexpr int registers = 32;
    using Floats = Vectors<lanes>::Floats;
    using Ints = Vectors<lanes>::Ints;

    [[gnu::always_inline]] static inline Floats fma(Floats a, Floats b, Floats c) {
        for (int i = 0; i < lanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
        return c;
    }
    [[gnu::always_inline]] static inline Floats load_bf16(const Bf16* from) {
        float values[extent(lanes)];
        for (int i = 0; i < lanes; ++i) {
            const std::uint32_t bits = static_cast<std::uint32_t>(from[i]) << 16;
            __builtin_memcpy(&values[i], &bits, sizeof bits);
        }
        Floats result;
        __builtin_memcpy(&result, values, sizeof result);
        return result;
    }
    [[gnu::always_inline]] static inline bool any(Ints mask) {
        std::int32_t found = 0;
        for (int i = 0; i < lanes; ++i) found |= mask[i];
        return found != 0;
    }
};

constexpr Kernels table = table_of<Emulated>("emulated_avx512");

}  // namespace

const cpu::Kernels& emulated_avx512_kernels() { return table; }

}  // namespace lorry::kernels::testing
