// The kernels for AMX: those of AVX-512 with its conversion to bfloat16, and with bfloat16 products and attention by matrix tiles; int8 and
// int4 sums of AVX-512 VNNI, by tiles if there are enough rows. isa.cpp calls them only if the processor supports all of these and the
// system permits the use of tiles.
// g++ 12 mistakes the undefined operand inside its own AVX-512 intrinsics for an uninitialized variable.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "kernels/cpu/simd/int8_dot.h"
#include "kernels/cpu/simd/isa_avx512bf16.h"
#include "kernels/cpu/simd/isa_avx512vnni.h"
#include "kernels/cpu/simd/table.h"

namespace lorry::kernels::cpu {

namespace {

// Assembly, because the compiler's intrinsics take a tile's number as text, which a template cannot provide.
struct AmxTiles {
    [[gnu::always_inline]] static inline void configure(const TileShapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes)); }
    [[gnu::always_inline]] static inline void release() { asm volatile("tilerelease" : : : "memory"); }
    template <int tile>
    [[gnu::always_inline]] static inline void clear() {
        asm volatile("tilezero %%tmm%c0" : : "i"(tile));
    }
    // Loads the rows of a tile from `from` on, `stride` bytes apart.
    template <int tile>
    [[gnu::always_inline]] static inline void load(const void* from, std::int64_t stride) {
        asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile) : "memory");
    }
    // The same, with a hint that the first-level cache need not keep the rows.
    template <int tile>
    [[gnu::always_inline]] static inline void load_once(const void* from, std::int64_t stride) {
        asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile) : "memory");
    }
    template <int tile>
    [[gnu::always_inline]] static inline void store(void* to, std::int64_t stride) {
        asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(tile) : "memory");
    }
};

struct Int8Tiles : AmxTiles {
    // sums += unsigned inputs times signed weights
    template <int sums, int inputs, int weights>
    [[gnu::always_inline]] static inline void dot() {
        asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(inputs), "i"(weights));
    }
};

struct Bfloat16Tiles : AmxTiles {
    template <int sums, int inputs, int weights>
    [[gnu::always_inline]] static inline void dot() {
        asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(inputs), "i"(weights));
    }
};

struct Int8Amx : Int8Avx512 {
    using Tiles = Int8Tiles;
    static constexpr int vectors = 2;
};

struct Bfloat16Amx : Avx512Narrowing {
    using Tiles = Bfloat16Tiles;
};

constexpr Kernels table = table_of<Bfloat16Amx>("avx512amx");

}  // namespace

const Kernels& avx512amx_kernels() { return table; }

const DotKernels& avx512amx_int4_kernels() { return DotMatmul<Int4Dot<Int8Amx>>::table; }

}  // namespace lorry::kernels::cpu
