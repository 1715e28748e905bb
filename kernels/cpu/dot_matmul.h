// Dense matmul of narrow inputs with narrow weights, for processors that multiply groups of them (2 bfloat16, 4 int8) and add the
// products to one sum. Instantiated by kernels_*bf16.cpp and int8_*.cpp over a `Dot`, which says how, and how weights are read: in
// stretches of `steps` groups. Of weights that take work to read (Dot::Unpacked), a panel for more rows than one tile is unpacked first.
//
// As in matmul.h, panels are the outer loop and row blocks the inner one, and an output is one chain over in_features whatever the block.
// Tiles of 8 rows x 3 vectors leave registers for the weights of one step and an input that goes to all lanes.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/matmul_output.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile_matmul.h"

namespace lorry::kernels::cpu {

// A stretch of weights that lie as they are multiplied.
template <class Dot>
struct PlainStretch {
    const std::byte* from;
    [[gnu::always_inline]] typename Dot::Weights weights(int, int vector) const { return Dot::load(from + vector * Dot::Isa::lanes * 4); }
};

template <class Dot>
struct DotMatmul {
    using V = Simd<typename Dot::Isa>;
    using Floats = typename V::Floats;
    using Sums = typename Dot::Sums;
    static constexpr int lanes = Dot::Isa::lanes;
    static constexpr int vectors = Dot::vectors;
    static constexpr int rows_max = Dot::rows_max;
    static constexpr std::int64_t width = vectors * lanes;
    static constexpr int group_bytes = 4;  // of one row
    static constexpr bool unpacks = requires { typename Dot::Unpacked; };
    static constexpr bool tiles = requires { typename Dot::Isa::Tiles; } && !unpacks;
    static constexpr int steps = Dot::steps;
    static constexpr std::int64_t stretch = steps * Dot::group;  // inputs
    static constexpr std::int64_t stretch_bytes = Dot::stretch_bytes;
    static constexpr int lines = static_cast<int>((stretch_bytes + 63) / 64);  // of the cache

    static std::int64_t stretches_of(const DotTask& task) { return (task.in_features + stretch - 1) / stretch; }

    // `prefetches` cache lines of what is read after this panel are asked for with each stretch.
    template <int rows, int prefetches>
    [[gnu::noinline]] static void tile(const DotTask& of_all, const std::byte* weights, const std::byte* next, std::int64_t row,
                                       std::int64_t column) {
        const DotTask task = of_all;  // its own: else g++ reads all of it again after each output that is written
        const typename Dot::Outputs outputs(task, column);
        Sums sums[extent(rows)][extent(vectors)];
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) sums[r][i] = Sums{};
        }
        // Where the outputs go is asked for before it is needed.
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
            for (int i = 0; i < vectors; ++i) __builtin_prefetch(task.out + (row + r) * task.out_stride + column + i * lanes, 1, 3);
        }
        const std::byte* in = task.in + row * task.in_stride;
        const auto add = [&](const std::byte* inputs, std::int64_t stride) __attribute__((always_inline)) {
            const typename Dot::Stretch from{weights};
#pragma GCC unroll 32
            for (int i = 0; i < prefetches; ++i) __builtin_prefetch(next + i * 64, 0, 2);
#pragma GCC unroll 32
            for (int step = 0; step < steps; ++step) {
                typename Dot::Weights w[extent(vectors)];
#pragma GCC unroll 32
                for (int i = 0; i < vectors; ++i) w[i] = from.weights(step, i);
#pragma GCC unroll 32
                for (int r = 0; r < rows; ++r) {
                    std::uint32_t group;
                    __builtin_memcpy(&group, inputs + r * stride + step * group_bytes, sizeof group);
                    const auto x = Dot::all(group);
#pragma GCC unroll 32
                    for (int i = 0; i < vectors; ++i) Dot::add(sums[r][i], w[i], x);
                }
            }
        };
        const std::int64_t whole = task.in_features / stretch;
        for (std::int64_t count = 0; count < whole; ++count) {
            add(in, task.in_stride);
            in += steps * group_bytes;
            weights += stretch_bytes;
            next += prefetches < lines ? prefetches * 64 : stretch_bytes;
        }
        // The last stretch may be cut short: what lies behind it is not read.
        if (const std::int64_t rest = task.in_features - whole * stretch; rest > 0) {
            std::byte inputs[extent(rows)][extent(steps * group_bytes)] = {};
            for (int r = 0; r < rows; ++r) {
                for (std::int64_t i = 0; i < rest * group_bytes / Dot::group; ++i) inputs[r][i] = in[r * task.in_stride + i];
            }
            add(inputs[0], steps * group_bytes);
        }
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
            Floats values[extent(vectors)];
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) values[i] = outputs.value(task, row + r, i, sums[r][i]);
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

    // All rows with one panel, whose first output is `column`.
    static void run_panel(const DotTask& task, const std::byte* weights, const std::byte* next, std::int64_t column) {
        if constexpr (tiles) {
            if (task.rows >= TileMatmul<Dot>::rows_least) return TileMatmul<Dot>::run_panel(task, weights, column);
        }
        const std::int64_t row_blocks = (task.rows + rows_max - 1) / rows_max;
        const std::int64_t share = stretches_of(task) * 64;
        std::int64_t row = 0;
        for (std::int64_t block = 0; block < row_blocks; ++block) {
            const std::int64_t row_end = task.rows * (block + 1) / row_blocks;
            // Few row blocks ask for all of the next panel while they compute, many for a share of it each.
            if (unpacks || row_blocks < lines) {
                tile_of<rows_max, lines>(row_end - row, task, weights, next, row, column);
            } else if constexpr (!unpacks) {
                tile_of<rows_max, 1>(row_end - row, task, weights, next + block % lines * share, row, column);
            }
            row = row_end;
        }
    }

    static void unpack(const DotTask& task, const std::byte* weights) {
        std::byte* to = task.scratch;
        for (std::int64_t count = stretches_of(task); count > 0; --count) {
            const typename Dot::Stretch from{weights};
#pragma GCC unroll 32
            for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 32
                for (int i = 0; i < vectors; ++i) {
                    const auto bytes = from.bytes(step, i);
                    __builtin_memcpy(to, &bytes, sizeof bytes);
                    to += sizeof bytes;
                }
            }
            weights += stretch_bytes;
        }
    }

    static void matmul(const DotTask& task, std::int64_t panel_begin, std::int64_t panel_end) {
        const std::int64_t panel_bytes = stretches_of(task) * stretch_bytes;
        for (std::int64_t panel = panel_begin; panel < panel_end; ++panel) {
            const std::byte* const weights = task.panels + panel * panel_bytes;
            const std::byte* const next = task.next == nullptr || panel + 1 < panel_end ? weights + panel_bytes : task.next;
            if constexpr (unpacks) {
                if (task.rows > rows_max) {
                    unpack(task, weights);
                    DotMatmul<typename Dot::Unpacked>::run_panel(task, task.scratch, next, panel * width);
                    continue;
                }
            }
            run_panel(task, weights, next, panel * width);
        }
    }

    // As Peak, of the dot instruction.
    static double operations(std::int64_t turns) {
        if constexpr (tiles) return TileMatmul<Dot>::operations(turns);
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

    static constexpr const DotKernels* unpacked() {
        if constexpr (unpacks) return &DotMatmul<typename Dot::Unpacked>::table;
        return nullptr;
    }
    static constexpr DotKernels table{.name = Dot::name,
                                      .storage = Dot::storage,
                                      .group = Dot::group,
                                      .panel_width = width,
                                      .unpacked = unpacked(),
                                      .matmul = matmul,
                                      .operations = operations};
};

}  // namespace lorry::kernels::cpu
