// Dense matmul of narrow inputs with narrow weights, for processors that multiply groups of them (2 bfloat16, 4 int8) and add the
// products to one sum. Instantiated by kernels_*bf16.cpp and int8_*.cpp over a `Dot`, which says how.
//
// As in matmul.h, panels are the outer loop and row blocks the inner one, and an output is one chain over in_features whatever the block.
// Tiles of 8 rows x 3 vectors leave a vector register for each of the weights and for nothing else: inputs are broadcast from memory.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/matmul_output.h"
#include "kernels/cpu/simd.h"

namespace lorry::kernels::cpu {

template <class Dot>
struct DotMatmul {
    using V = Simd<typename Dot::Isa>;
    using Floats = typename V::Floats;
    using Sums = typename Dot::Sums;
    static constexpr int lanes = Dot::Isa::lanes;
    static constexpr int vectors = Dot::vectors;
    static constexpr int rows_max = Dot::rows_max;
    static constexpr std::int64_t width = vectors * lanes;
    static constexpr std::int64_t group_bytes = 4;  // of one row or one output
    static constexpr std::int64_t line_bytes = width * group_bytes;

    static std::int64_t groups_of(const DotTask& task) { return (task.in_features + Dot::group - 1) / Dot::group; }

    // `prefetches` cache lines of what is read after this panel are asked for with each group.
    template <int rows, int prefetches>
    [[gnu::noinline]] static void tile(const DotTask& task, const std::byte* weights, const std::byte* next, std::int64_t row,
                                       std::int64_t column) {
        Sums sums[extent(rows)][extent(vectors)];
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) sums[r][i] = Sums{};
        }
        const std::byte* in = task.in + row * task.in_stride;
        const auto step = [&](auto load) __attribute__((always_inline)) {
            typename Dot::Weights w[extent(vectors)];
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) w[i] = Dot::load(weights + i * lanes * group_bytes);
#pragma GCC unroll 32
            for (int i = 0; i < prefetches; ++i) __builtin_prefetch(next + i * 64, 0, 2);
#pragma GCC unroll 32
            for (int r = 0; r < rows; ++r) {
                const auto x = Dot::all(load(in + r * task.in_stride));
#pragma GCC unroll 32
                for (int i = 0; i < vectors; ++i) Dot::add(sums[r][i], w[i], x);
            }
        };
        const std::int64_t whole = task.in_features / Dot::group;
        for (std::int64_t group = 0; group < whole; ++group) {
            step([](const std::byte* from) __attribute__((always_inline)) {
                std::uint32_t x;
                __builtin_memcpy(&x, from, sizeof x);
                return x;
            });
            in += group_bytes;
            weights += line_bytes;
            next += prefetches * 64;
        }
        // The last group may be cut short: what lies behind it is not read.
        if (const std::int64_t rest = task.in_features - whole * Dot::group; rest > 0) {
            const auto bytes = static_cast<std::size_t>(rest * group_bytes / Dot::group);
            step([bytes](const std::byte* from) __attribute__((always_inline)) {
                std::uint32_t x = 0;
                for (std::size_t i = 0; i < bytes; ++i) x |= static_cast<std::uint32_t>(from[i]) << (8 * i);
                return x;
            });
        }
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
            Floats values[extent(vectors)];
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) values[i] = Dot::value(task, row + r, column + i * lanes, sums[r][i]);
            MatmulOutput<typename Dot::Isa>::template finish<vectors>(task, row + r, column, values);
        }
    }

    // Calls the tile made for exactly `count` rows.
    template <int rows, int prefetches>
    static void tile_of(std::int64_t count, const DotTask& task, const std::byte* weights, const std::byte* next, std::int64_t row,
                        std::int64_t column) {
        if (count == rows) {
            tile<rows, prefetches>(task, weights, next, row, column);
        } else if constexpr (rows > 1) {
            tile_of<rows - 1, prefetches>(count, task, weights, next, row, column);
        }
    }

    static void matmul(const DotTask& task, std::int64_t panel_begin, std::int64_t panel_end) {
        const std::int64_t groups = groups_of(task);
        const std::int64_t panel_bytes = groups * line_bytes;
        constexpr int lines = static_cast<int>(line_bytes / 64);
        const std::int64_t row_blocks = (task.rows + rows_max - 1) / rows_max;
        for (std::int64_t panel = panel_begin; panel < panel_end; ++panel) {
            const std::byte* const weights = task.panels + panel * panel_bytes;
            const std::byte* const next = weights + panel_bytes;
            std::int64_t row = 0;
            for (std::int64_t block = 0; block < row_blocks; ++block) {
                const std::int64_t row_end = task.rows * (block + 1) / row_blocks;
                // Few row blocks ask for all of the next panel while they compute, many for a share of it each.
                if (row_blocks < lines) {
                    tile_of<rows_max, lines>(row_end - row, task, weights, next, row, panel * width);
                } else {
                    tile_of<rows_max, 1>(row_end - row, task, weights, next + block % lines * groups * 64, row, panel * width);
                }
                row = row_end;
            }
        }
    }

    // As Peak, of the dot instruction.
    static double operations(std::int64_t turns) {
        constexpr int sums_count = 12;
        Sums start[extent(sums_count)] = {};
        asm volatile("" : "+m"(start));  // else equal sums would be computed once
        Sums sums[extent(sums_count)];
#pragma GCC unroll 32
        for (int i = 0; i < sums_count; ++i) sums[i] = start[i];
        std::byte bytes[extent(lanes * 4)];
        for (int i = 0; i < lanes * 4; ++i) bytes[i] = static_cast<std::byte>(i % 3);
        const auto w = Dot::load(bytes);
        const auto x = Dot::all(0x01010101U);
        for (std::int64_t turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 32
            for (int i = 0; i < sums_count; ++i) Dot::add(sums[i], w, x);
        }
#pragma GCC unroll 32
        for (int i = 0; i < sums_count; ++i) start[i] = sums[i];
        asm volatile("" : : "m"(start));
        return 2.0 * sums_count * Dot::group * lanes * static_cast<double>(turns);
    }

    static constexpr DotKernels table{
        .name = Dot::name, .group = Dot::group, .panel_width = width, .matmul = matmul, .operations = operations};
};

}  // namespace lorry::kernels::cpu
