// Multiplies DotMatmul's panels with matrix tiles (Intel AMX): 16 rows by 16 outputs at a time, over 64 inputs of int8 or 32 of bfloat16.
// Integer sums are exact, so dot_matmul.h uses tiles when there are enough rows, and the results are the same. A bfloat16 output is one
// chain of sums of 32 inputs each, whatever the number of rows, so its `table` uses tiles for all of them. Instantiated over a Dot whose
// Isa has Tiles. Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/matmul_output.h"
#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

// The memory operand of LDTILECFG.
struct alignas(64) TileShapes {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
};

// How far ahead weights are prefetched, in bytes, when one pass over them waits for memory.
inline constexpr std::int64_t near_bytes = 4096;
[[gnu::always_inline]] inline void ask_for_first(const std::byte* next) {
    if (next == nullptr) return;
    for (std::int64_t i = 0; i < near_bytes; i += 64) __builtin_prefetch(next + i, 0, 2);
}

// Consecutive panels.
struct PanelRun {
    const std::byte* weights;
    const std::byte* next;  // weights to prefetch meanwhile
    std::int64_t column;    // first output of the first panel
    std::int64_t panels = 1;
};

template <class Dot>
struct TileMatmul {
    using Tiles = typename Dot::Isa::Tiles;
    using V = Simd<typename Dot::Isa>;
    static constexpr int lanes = Dot::Isa::lanes;
    static constexpr int vectors = Dot::vectors;
    static constexpr int rows_max = 16;
    static constexpr int line_bytes = 64;
    static constexpr int width = vectors * lanes;  // outputs of a panel
    static constexpr std::int64_t group_bytes = width * 4;
    static constexpr int parts = width / 16;
    static constexpr std::int64_t groups_whole = 16;  // groups of inputs in a line
    // Numbers of the tiles; sums are tiles 0 … parts - 1. Those named rest hold the inputs after the last whole line.
    static constexpr int inputs = parts;
    static constexpr int weights = parts + 1;
    static constexpr int inputs_rest = parts + 2;
    static constexpr int weights_rest = parts + 3;
    static_assert(width % 16 == 0 && weights_rest < 8, "a panel's sums and their factors fit into 8 tiles");

    static TileShapes shapes_of(std::int64_t rows, std::int64_t groups_rest) {
        TileShapes shapes;
        const auto set = [&](int tile, std::int64_t tile_rows, std::int64_t bytes) __attribute__((always_inline)) {
            shapes.rows[tile] = static_cast<std::uint8_t>(tile_rows);
            shapes.row_bytes[tile] = static_cast<std::uint16_t>(bytes);
        };
        for (int part = 0; part < parts; ++part) set(part, rows, line_bytes);
        set(inputs, rows, line_bytes);
        set(weights, groups_whole, line_bytes);
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
    [[gnu::always_inline]] static inline void store(std::byte (&sums)[rows_max][extent(group_bytes)]) {
        Tiles::template store<part>(&sums[0][part * line_bytes], group_bytes);
        if constexpr (part + 1 < parts) store<part + 1>(sums);
    }

    static std::int64_t panel_bytes_of(const DotTask& task) { return (task.in_features + Dot::group - 1) / Dot::group * group_bytes; }

    // Multiplies all rows with one panel, whose first output is `column`. Each block of rows prefetches its share of one panel at `next`.
    // `configured` is the number of rows that the tiles are configured for, 0 before the first call.
    static void run_panel(const DotTask& task, const std::byte* panel, const std::byte* next, std::int64_t column,
                          std::int64_t& configured) {
        const typename Dot::Outputs outputs(task, column);
        const std::int64_t row_bytes = task.in_features * 4 / Dot::group;
        const std::int64_t whole = row_bytes / line_bytes;
        const std::int64_t bytes_rest = row_bytes - whole * line_bytes;
        const std::int64_t groups_rest = (bytes_rest + 3) / 4;
        const std::int64_t blocks = (task.rows + rows_max - 1) / rows_max;
        const std::int64_t ahead = (groups_whole * parts + blocks - 1) / blocks;
        const std::int64_t ahead_rest = (groups_rest * parts + blocks - 1) / blocks;
        const auto ask = [&](std::int64_t lines) __attribute__((always_inline)) {
            for (; lines > 0; --lines, next += line_bytes) __builtin_prefetch(next, 0, 2);
        };
        for (std::int64_t row = 0; row < task.rows; row += rows_max) {
            const std::int64_t rows = task.rows - row < rows_max ? task.rows - row : rows_max;
            if (rows != configured) Tiles::configure(shapes_of(rows, groups_rest));
            configured = rows;
            clear<0>();
            const std::byte* in = task.in + row * task.in_stride;
            const std::byte* from = panel;
            for (std::int64_t line = 0; line < whole; ++line, in += line_bytes, from += groups_whole * group_bytes) {
                ask(ahead);
                Tiles::template load<inputs>(in, task.in_stride);
                add<0, inputs, weights>(from);
            }
            // Nothing after a row's last input is read.
            if (groups_rest > 0) {
                ask(ahead_rest);
                std::byte rest[rows_max][line_bytes] = {};
                for (std::int64_t r = 0; r < rows; ++r) {
                    for (std::int64_t i = 0; i < bytes_rest; ++i) rest[r][i] = in[r * task.in_stride + i];
                }
                Tiles::template load<inputs_rest>(rest, line_bytes);
                add<0, inputs_rest, weights_rest>(from);
            }
            alignas(64) std::byte sums[rows_max][extent(group_bytes)];
            store<0>(sums);
            for (std::int64_t r = 0; r < rows; ++r) {
                typename V::Floats values[extent(vectors)];
#pragma GCC unroll 32
                for (int i = 0; i < vectors; ++i) {
                    typename Dot::Sums sum;
                    __builtin_memcpy(&sum, &sums[r][i * lanes * 4], sizeof sum);
                    values[i] = outputs.value(task, row + r, i, sum);
                }
                MatmulOutput<typename Dot::Isa>::template finish<vectors>(task, row + r, column, values);
            }
        }
    }

    // Multiplies all rows with these panels.
    static void run_panels(const DotTask& task, const PanelRun& run) {
        const std::int64_t panel_bytes = panel_bytes_of(task);
        std::int64_t configured = 0;
        for (std::int64_t panel = 0; panel < run.panels; ++panel) {
            const std::int64_t offset = panel * panel_bytes;
            run_panel(task, run.weights + offset, run.next + offset, run.column + panel * width, configured);
        }
        Tiles::release();
    }

    static void matmul(const DotTask& task, std::int64_t panel_begin, std::int64_t panel_end) {
        const auto at = [&](std::int64_t panel) __attribute__((always_inline)) { return task.panels + panel * panel_bytes_of(task); };
        const auto walk = [&](std::int64_t begin, std::int64_t end, const std::byte* next) __attribute__((always_inline)) {
            run_panels(task, {at(begin), next, begin * width, end - begin});
        };
        // A single block of rows waits for memory.
        if (task.rows <= rows_max) {
            ask_for_first(task.next);
            return walk(panel_begin, panel_end, at(panel_begin) + near_bytes);
        }
        walk(panel_begin, panel_end - 1, at(panel_begin + 1));
        walk(panel_end - 1, panel_end, task.next == nullptr ? at(panel_end) : task.next);
    }

    // Like Peak, for the products of tiles.
    static double operations(std::int64_t turns) {
        Tiles::configure(shapes_of(rows_max, 0));
        alignas(64) std::byte bytes[extent(rows_max * line_bytes)] = {};
        Tiles::template load<inputs>(bytes, line_bytes);
        Tiles::template load<weights>(bytes, line_bytes);
        clear<0>();
        for (std::int64_t turn = 0; turn < turns; ++turn) multiply<0>();
        Tiles::release();
        return 2.0 * parts * rows_max * 16 * groups_whole * Dot::group * static_cast<double>(turns);
    }

    static constexpr DotKernels table{
        .name = Dot::name, .storage = Dot::storage, .group = Dot::group, .panel_width = width, .matmul = matmul, .operations = operations};

private:
    template <int part>
    [[gnu::always_inline]] static inline void multiply() {
        Tiles::template dot<part, inputs, weights>();
        if constexpr (part + 1 < parts) multiply<part + 1>();
    }
};

}  // namespace lorry::kernels::cpu
