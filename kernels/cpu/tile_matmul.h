// DotMatmul's panels by a processor's matrix tiles (Intel's AMX): 16 rows x 64 inputs times 64 inputs x 16 outputs at a time. The panels
// are those of the dot kernels, and integer sums are exact, so that results do not tell which of the two made them. Used by dot_matmul.h
// for an Isa that has Tiles, from rows_least rows on. Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1,
// chapter 18.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/matmul_output.h"
#include "kernels/cpu/simd.h"

namespace lorry::kernels::cpu {

// What LDTILECFG reads.
struct alignas(64) TileShapes {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
};

template <class Dot>
struct TileMatmul {
    using Tiles = typename Dot::Isa::Tiles;
    using V = Simd<typename Dot::Isa>;
    static constexpr int lanes = Dot::Isa::lanes;
    static constexpr int vectors = Dot::vectors;
    static constexpr int rows_max = 16;
    static constexpr std::int64_t rows_least = 8;  // fewer leave most of a tile empty
    static constexpr int line_bytes = 64;
    static constexpr int width = vectors * lanes;  // outputs of a panel
    static constexpr std::int64_t group_bytes = width * 4;
    static constexpr int parts = width / 16;
    // Which tile is what; sums are tiles 0 … parts - 1. Those of the rest hold the inputs behind the last whole 64.
    static constexpr int inputs = parts;
    static constexpr int weights = parts + 1;
    static constexpr int inputs_rest = parts + 2;
    static constexpr int weights_rest = parts + 3;
    static_assert(width % 16 == 0 && weights_rest < 8, "a panel's sums and their factors fit into 8 tiles");

    // groups_rest: groups of 4 inputs.
    static TileShapes shapes_of(std::int64_t rows, std::int64_t groups_rest) {
        TileShapes shapes;
        const auto set = [&](int tile, std::int64_t tile_rows, std::int64_t bytes) __attribute__((always_inline)) {
            shapes.rows[tile] = static_cast<std::uint8_t>(tile_rows);
            shapes.row_bytes[tile] = static_cast<std::uint16_t>(bytes);
        };
        for (int part = 0; part < parts; ++part) set(part, rows, line_bytes);
        set(inputs, rows, line_bytes);
        set(weights, 16, line_bytes);
        if (groups_rest > 0) {
            set(inputs_rest, rows, groups_rest * 4);
            set(weights_rest, groups_rest, line_bytes);
        }
        return shapes;
    }

    template <int part>
    [[gnu::always_inline]] static inline void clear() {
        Tiles::template clear<part>();
        if constexpr (part + 1 < parts) clear<part + 1>();
    }
    template <int part, int inputs_tile, int weights_tile>
    [[gnu::always_inline]] static inline void add(const std::byte* from) {
        Tiles::template load<weights_tile>(from + part * line_bytes, group_bytes);
        Tiles::template dot<part, inputs_tile, weights_tile>();
        if constexpr (part + 1 < parts) add<part + 1, inputs_tile, weights_tile>(from);
    }
    template <int part>
    [[gnu::always_inline]] static inline void store(std::int32_t (&sums)[rows_max][extent(width)]) {
        Tiles::template store<part>(&sums[0][part * 16], group_bytes);
        if constexpr (part + 1 < parts) store<part + 1>(sums);
    }

    // All rows with one panel, whose first output is `column`.
    static void run_panel(const DotTask& task, const std::byte* panel, std::int64_t column) {
        const typename Dot::Outputs outputs(task, column);
        const std::int64_t whole = task.in_features / line_bytes;
        const std::int64_t groups_rest = (task.in_features - whole * line_bytes + 3) / 4;
        std::int64_t configured = 0;
        for (std::int64_t row = 0; row < task.rows; row += rows_max) {
            const std::int64_t rows = task.rows - row < rows_max ? task.rows - row : rows_max;
            if (rows != configured) Tiles::configure(shapes_of(rows, groups_rest));
            configured = rows;
            clear<0>();
            const std::byte* in = task.in + row * task.in_stride;
            const std::byte* from = panel;
            for (std::int64_t line = 0; line < whole; ++line, in += line_bytes, from += 16 * group_bytes) {
                Tiles::template load<inputs>(in, task.in_stride);
                add<0, inputs, weights>(from);
            }
            // What lies behind a row's last input is not read.
            if (groups_rest > 0) {
                std::byte rest[rows_max][line_bytes] = {};
                for (std::int64_t r = 0; r < rows; ++r) {
                    for (std::int64_t i = 0; i < task.in_features - whole * line_bytes; ++i) rest[r][i] = in[r * task.in_stride + i];
                }
                Tiles::template load<inputs_rest>(rest, line_bytes);
                add<0, inputs_rest, weights_rest>(from);
            }
            alignas(64) std::int32_t sums[rows_max][extent(width)];
            store<0>(sums);
            for (std::int64_t r = 0; r < rows; ++r) {
                typename V::Floats values[extent(vectors)];
#pragma GCC unroll 32
                for (int i = 0; i < vectors; ++i) {
                    typename Dot::Sums sum;
                    __builtin_memcpy(&sum, &sums[r][i * lanes], sizeof sum);
                    values[i] = outputs.value(task, row + r, i, sum);
                }
                MatmulOutput<typename Dot::Isa>::template finish<vectors>(task, row + r, column, values);
            }
        }
        Tiles::release();
    }

    // As Peak, of the tiles' products.
    static double operations(std::int64_t turns) {
        Tiles::configure(shapes_of(rows_max, 0));
        alignas(64) std::byte bytes[extent(rows_max * line_bytes)] = {};
        Tiles::template load<inputs>(bytes, line_bytes);
        Tiles::template load<weights>(bytes, line_bytes);
        clear<0>();
        for (std::int64_t turn = 0; turn < turns; ++turn) multiply<0>();
        Tiles::release();
        return 2.0 * parts * rows_max * 16 * line_bytes * static_cast<double>(turns);
    }

private:
    template <int part>
    [[gnu::always_inline]] static inline void multiply() {
        Tiles::template dot<part, inputs, weights>();
        if constexpr (part + 1 < parts) multiply<part + 1>();
    }
};

}  // namespace lorry::kernels::cpu
