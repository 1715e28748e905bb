// Instantiates the 16-lane kernels under AVX2 flags: slow, but the same logic; see devices.h. Vectors wider than the registers are passed
// in memory, which is consistent within this file.
#pragma GCC diagnostic ignored "-Wpsabi"

#include <immintrin.h>

#include "kernels/cpu/simd/int8_dot.h"
#include "kernels/cpu/simd/int8_lanes.h"
#include "kernels/cpu/simd/table.h"

namespace lorry::kernels::testing {

using namespace cpu;

// As devices.h declares them; its headers must not be included in a file with these flags.
const cpu::Kernels& emulated_avx512_kernels();
const cpu::Kernels& emulated_avx512bf16_kernels();
const cpu::Kernels& emulated_avx512amx_kernels();
const cpu::DotKernels& emulated_avx512amx_int4_kernels();

namespace {

struct Emulated {
    static constexpr int lanes = 16;
    static constexpr int registers = 32;
    using Floats = Vectors<lanes>::Floats;
    using Ints = Vectors<lanes>::Ints;

    // Each half by the instruction for 8 lanes: lane by lane, the compiler would need several times as long.
    template <class Vector, class Operation>
    [[gnu::always_inline]] static inline Vector by_halves(const Operation& operation) {
        const __m256 halves[2] = {operation(0), operation(1)};
        Vector result;
        __builtin_memcpy(&result, halves, sizeof result);
        return result;
    }
    template <class Vector>
    [[gnu::always_inline]] static inline __m256 half(const Vector& of, int which) {
        __m256 lanes_of_half;
        __builtin_memcpy(&lanes_of_half, reinterpret_cast<const char*>(&of) + which * 32, sizeof lanes_of_half);
        return lanes_of_half;
    }
    [[gnu::always_inline]] static inline Floats fma(Floats a, Floats b, Floats c) {
        return by_halves<Floats>([&](int i) __attribute__((always_inline)) { return _mm256_fmadd_ps(half(a, i), half(b, i), half(c, i)); });
    }
    [[gnu::always_inline]] static inline Floats larger(Floats a, Floats b) {
        return by_halves<Floats>([&](int i) __attribute__((always_inline)) { return _mm256_max_ps(half(a, i), half(b, i)); });
    }
    [[gnu::always_inline]] static inline Floats smaller(Floats a, Floats b) {
        return by_halves<Floats>([&](int i) __attribute__((always_inline)) { return _mm256_min_ps(half(a, i), half(b, i)); });
    }
    [[gnu::always_inline]] static inline Floats load_bf16(const Bf16* from) {
        return by_halves<Floats>([&](int i) __attribute__((always_inline)) {
            const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * 8));
            return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
        });
    }
    // `lanes` bytes.
    [[gnu::always_inline]] static inline Ints widened(const std::byte* from) {
        return by_halves<Ints>([&](int i) __attribute__((always_inline)) {
            return _mm256_castsi256_ps(_mm256_cvtepu8_epi32(_mm_loadu_si64(from + i * 8)));
        });
    }
    [[gnu::always_inline]] static inline bool any(Ints mask) {
        return _mm256_movemask_ps(half(mask, 0)) != 0 || _mm256_movemask_ps(half(mask, 1)) != 0;
    }
};

// The elements of a pair of bfloat16.
[[gnu::always_inline]] inline float first(std::uint32_t pair) { return __builtin_bit_cast(float, pair << 16); }
[[gnu::always_inline]] inline float second(std::uint32_t pair) { return __builtin_bit_cast(float, pair & 0xFFFF0000U); }

struct EmulatedBf16 : Emulated {
    static constexpr bool multiplies_subnormals = true;
    using Words = Vectors<Emulated::lanes * 2>::Halves;
    [[gnu::noinline]] static Words looked_up(const Words (&tables)[2], Words index) {
        for (int i = 0; i < Emulated::lanes * 2; ++i) index[i] = tables[index[i] / 32 % 2][index[i] % 32];
        return index;
    }
    [[gnu::noinline]] static Words looked_up(const Words& table, Words index) {
        for (int i = 0; i < Emulated::lanes * 2; ++i) index[i] = table[index[i] % 32];
        return index;
    }
    struct Pairs {
        std::uint32_t lanes[extent(Emulated::lanes)];
    };
    [[gnu::always_inline]] static inline Pairs all_pairs(std::uint32_t pair) {
        Pairs x;
        for (std::uint32_t& lane : x.lanes) lane = pair;
        return x;
    }
    // The upper 16 bits of each pair, or the lower ones, as a float32.
    [[gnu::always_inline]] static inline Floats seconds(const Pairs& pairs) {
        return by_halves<Floats>([&](int i) __attribute__((always_inline)) {
            return _mm256_and_ps(half(pairs, i), _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
        });
    }
    [[gnu::always_inline]] static inline Floats firsts(const Pairs& pairs) {
        return by_halves<Floats>([&](int i) __attribute__((always_inline)) {
            return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(half(pairs, i)), 16));
        });
    }
    [[gnu::always_inline]] static inline Floats dot(Floats sums, const Pairs& w, const Pairs& x) {
        return fma(firsts(w), firsts(x), fma(seconds(w), seconds(x), sums));
    }
};

// Each instruction as the manual specifies it; what the manual forbids aborts the test.
struct EmulatedTiles {
    struct State {
        bool configured = false;
        TileShapes shapes;
        std::uint8_t tiles[8][16][64];
    };
    static State& state() {
        static thread_local State own;
        return own;
    }
    static void demand(bool condition) {
        if (!condition) __builtin_trap();
    }
    static void configure(const TileShapes& shapes) {
        State& own = state();
        demand(shapes.palette == 1 && shapes.start_row == 0);
        for (int tile = 0; tile < 16; ++tile) {
            demand((shapes.rows[tile] == 0) == (shapes.row_bytes[tile] == 0));
            demand(shapes.rows[tile] <= (tile < 8 ? 16 : 0) && shapes.row_bytes[tile] <= 64);
        }
        own.configured = true;
        own.shapes = shapes;
        __builtin_memset(own.tiles, 0, sizeof own.tiles);
    }
    static void release() { state().configured = false; }
    static int rows_of(int tile) {
        demand(state().configured && state().shapes.rows[tile] > 0);
        return state().shapes.rows[tile];
    }
    template <int tile>
    static void clear() {
        rows_of(tile);
        __builtin_memset(state().tiles[tile], 0, sizeof state().tiles[tile]);
    }
    // Rows and bytes outside the tile become zeros.
    template <int tile>
    static void load(const void* from, std::int64_t stride) {
        const int rows = rows_of(tile);
        clear<tile>();
        for (int row = 0; row < rows; ++row) {
            __builtin_memcpy(state().tiles[tile][row], static_cast<const std::byte*>(from) + row * stride, state().shapes.row_bytes[tile]);
        }
    }
    template <int tile>
    static void load_once(const void* from, std::int64_t stride) {
        load<tile>(from, stride);
    }
    template <int tile>
    static void store(void* to, std::int64_t stride) {
        const int rows = rows_of(tile);
        for (int row = 0; row < rows; ++row) {
            __builtin_memcpy(static_cast<std::byte*>(to) + row * stride, state().tiles[tile][row], state().shapes.row_bytes[tile]);
        }
    }
    // Calls add(sum, inputs, weights) with each sum, the input groups of its row, 4 bytes apart, and the weight groups of its column, 64
    // bytes apart.
    template <class Sum, class Add>
    static void multiply(int sums, int inputs, int weights, const Add& add) {
        State& own = state();
        demand(rows_of(sums) == rows_of(inputs) && own.shapes.row_bytes[inputs] == rows_of(weights) * 4);
        demand(own.shapes.row_bytes[sums] == own.shapes.row_bytes[weights]);
        for (int row = 0; row < rows_of(sums); ++row) {
            for (int column = 0; column < own.shapes.row_bytes[sums] / 4; ++column) {
                Sum sum;
                __builtin_memcpy(&sum, &own.tiles[sums][row][column * 4], sizeof sum);
                add(sum, own.tiles[inputs][row], &own.tiles[weights][0][column * 4]);
                __builtin_memcpy(&own.tiles[sums][row][column * 4], &sum, sizeof sum);
            }
        }
    }
};

struct EmulatedInt8Tiles : EmulatedTiles {
    template <int sums, int inputs, int weights>
    static void dot() {
        const int groups = rows_of(weights);
        multiply<std::int32_t>(sums, inputs, weights, [&](std::int32_t& sum, const std::uint8_t* x, const std::uint8_t* w) {
            for (int group = 0; group < groups; ++group) {
                for (int i = 0; i < 4; ++i) sum += x[group * 4 + i] * static_cast<std::int8_t>(w[group * 64 + i]);
            }
        });
    }
};

struct EmulatedBfloat16Tiles : EmulatedTiles {
    // Each instruction adds up the first and the second elements of all pairs, then both, then that to the sum.
    [[gnu::noipa]] static void add_products(int sums, int inputs, int weights) {
        const int groups = rows_of(weights);
        multiply<float>(sums, inputs, weights, [&](float& sum, const std::uint8_t* x, const std::uint8_t* w) {
            float firsts = 0.0F;
            float seconds = 0.0F;
            for (int group = 0; group < groups; ++group) {
                std::uint32_t inputs_pair;
                std::uint32_t weights_pair;
                __builtin_memcpy(&inputs_pair, x + group * 4, sizeof inputs_pair);
                __builtin_memcpy(&weights_pair, w + group * 64, sizeof weights_pair);
                firsts = __builtin_fmaf(first(inputs_pair), first(weights_pair), firsts);
                seconds = __builtin_fmaf(second(inputs_pair), second(weights_pair), seconds);
            }
            sum += firsts + seconds;
        });
    }
    // "DAZ=FTZ=1, RNE rounding": set on the processor, which applies them to other instructions as well.
    template <int sums, int inputs, int weights>
    static void dot() {
        constexpr unsigned daz_ftz_nearest_no_exceptions = 0x9FC0;
        const unsigned before = __builtin_ia32_stmxcsr();
        __builtin_ia32_ldmxcsr(daz_ftz_nearest_no_exceptions);
        add_products(sums, inputs, weights);
        __builtin_ia32_ldmxcsr(before);
    }
};

// AVX-512 VNNI with matrix tiles.
struct EmulatedInt8Amx : Int8Lanes<Emulated> {
    using Tiles = EmulatedInt8Tiles;
    // A call: its 64 products in each place of a matmul would be most of this file's code.
    [[gnu::noinline]] static void dot(Sums& sums, const Weights& w, const Inputs& x) { Int8Lanes<Emulated>::dot(sums, w, x); }
    static constexpr int vectors = 2;
    static constexpr int rows_max = 8;
};

struct EmulatedBfloat16Amx : Emulated {
    using Tiles = EmulatedBfloat16Tiles;
};

constexpr Kernels table = table_of<Emulated>("emulated_avx512");
constexpr Kernels table_bf16 = table_of<EmulatedBf16>("emulated_avx512bf16");
constexpr Kernels table_amx = table_of<EmulatedBfloat16Amx>("emulated_avx512amx");

}  // namespace

const cpu::Kernels& emulated_avx512_kernels() { return table; }
const cpu::Kernels& emulated_avx512bf16_kernels() { return table_bf16; }

const cpu::Kernels& emulated_avx512amx_kernels() { return table_amx; }
const cpu::DotKernels& emulated_avx512amx_int4_kernels() { return DotMatmul<Int4Dot<EmulatedInt8Amx>>::table; }

}  // namespace lorry::kernels::testing
