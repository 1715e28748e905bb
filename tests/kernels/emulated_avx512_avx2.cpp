// Instantiates the 16-lane kernels under AVX2 flags; see devices.h. Slow, but the same logic.
// Vectors wider than the registers are passed in memory: within this file that is consistent.
#pragma GCC diagnostic ignored "-Wpsabi"

#include "kernels/cpu/table.h"

namespace lorry::kernels::testing {

using namespace cpu;

// The same as devices.h declares; its headers do not belong in a file with these flags.
const cpu::Kernels& emulated_avx512_kernels();
const cpu::Kernels& emulated_avx512bf16_kernels();

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
    // `lanes` bytes.
    [[gnu::always_inline]] static inline Ints widened(const std::byte* from) {
        Ints x;
        for (int i = 0; i < lanes; ++i) x[i] = static_cast<std::int32_t>(from[i]);
        return x;
    }
    [[gnu::always_inline]] static inline bool any(Ints mask) {
        std::int32_t found = 0;
        for (int i = 0; i < lanes; ++i) found |= mask[i];
        return found != 0;
    }
};

struct EmulatedBf16 : Emulated {
    struct Pairs {
        std::uint32_t lanes[extent(Emulated::lanes)];
    };
    [[gnu::always_inline]] static inline Pairs all_pairs(std::uint32_t pair) {
        Pairs x;
        for (std::uint32_t& lane : x.lanes) lane = pair;
        return x;
    }
    [[gnu::always_inline]] static inline float first(std::uint32_t pair) { return __builtin_bit_cast(float, pair << 16); }
    [[gnu::always_inline]] static inline float second(std::uint32_t pair) { return __builtin_bit_cast(float, pair & 0xFFFF0000U); }
    [[gnu::always_inline]] static inline Floats dot(Floats sums, const Pairs& w, const Pairs& x) {
        for (int i = 0; i < Emulated::lanes; ++i) {
            const float sum = __builtin_fmaf(second(w.lanes[i]), second(x.lanes[i]), sums[i]);
            sums[i] = __builtin_fmaf(first(w.lanes[i]), first(x.lanes[i]), sum);
        }
        return sums;
    }
};

constexpr Kernels table = table_of<Emulated>("emulated_avx512");
constexpr Kernels table_bf16 = table_of<EmulatedBf16>("emulated_avx512bf16");

}  // namespace

const cpu::Kernels& emulated_avx512_kernels() { return table; }
const cpu::Kernels& emulated_avx512bf16_kernels() { return table_bf16; }

}  // namespace lorry::kernels::testing
