// Dense matmul of narrow inputs with narrow weights, for processors that multiply groups of them (2 bfloat16, 4 int8) and add the products
// to one sum. Instantiated by table.h, wide_dot.h and the int8 sources over a `Dot`, which defines the products and how weights are read:
// in stretches of `steps` groups. Weights that take work to read (Dot::Unpacked) are unpacked a panel at a time when there are more rows
// than one tile holds.
//
// As in matmul.h, panels are the outer loop and row blocks the inner one, and an output is one chain over in_features whatever the block.
// Tiles of 8 rows x 3 vectors leave registers for the weights of one step and for an input broadcast to all lanes.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/matmul_output.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/tile_matmul.h"

namespace lorry::kernels::cpu {

template <class Narrow>
struct WideMatmul;

// A stretch of weights that are stored as they are multiplied.
template <class Dot>
struct PlainStretch {
    const std::byte* from;
    [[gnu::always_inline]] auto bytes(int, int vector) const {
        typename Vectors<Dot::Isa::lanes * 4>::Octets bytes;
        __builtin_memcpy(&bytes, from + vector * Dot::Isa::lanes * 4, sizeof bytes);
        return bytes;
    }
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
    static constexpr int group_bytes = 4;  // bytes of one row's group
    static constexpr bool unpacks = requires { typename Dot::Unpacked; };
    static constexpr bool is_wide = requires { Dot::is_wide; };  // inputs and weights of 16 bits, in whole stretches: wide_dot.h
    static constexpr bool widens = !is_wide && requires { Dot::Isa::wide_rows_max; };
    static constexpr bool has_tiles = requires { typename Dot::Isa::Tiles; };
    static constexpr bool tiles = has_tiles && !unpacks;
    static constexpr std::int64_t tile_rows_least = 8;  // fewer rows leave most of a tile empty
    static constexpr int steps = Dot::steps;
    static constexpr std::int64_t stretch = steps * Dot::group;  // inputs of a stretch
    static constexpr std::int64_t stretch_bytes = Dot::stretch_bytes;
    static constexpr int lines = static_cast<int>((stretch_bytes + 63) / 64);  // cache lines of a stretch
    static constexpr std::int64_t near_rows = 2;  // with more rows, computing takes longer than the hardware prefetcher reads ahead

    static std::int64_t stretches_of(const DotTask& task) { return (task.in_features + stretch - 1) / stretch; }

    // Prefetches `prefetches` cache lines of the next weights with each stretch.
    template <int rows, int prefetches, class Task>
    [[gnu::noinline]] static void tile(const Task& of_all, const PanelRun& run, std::int64_t row) {
        const Task task = of_all;  // a copy: otherwise g++ reloads all of it after each output that is written
        const std::byte* weights = run.weights;
        const std::byte* next = run.next;
        const std::int64_t place_end = run.place + run.panels * width;
        for (std::int64_t place = run.place; place < place_end; place += width)
            panel_tile<rows, prefetches>(task, weights, next, row, place);
    }

    // Advances `weights` and `next` past the panel.
    template <int rows, int prefetches, class Task>
    [[gnu::always_inline]] static inline void panel_tile(const Task& task, const std::byte*& weights, const std::byte*& next,
                                                         std::int64_t row, std::int64_t place) {
        const typename Dot::Outputs outputs(task, place);
        Sums sums[extent(rows)][extent(vectors)];
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) sums[r][i] = Sums{};
        }
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) MatmulOutput<typename Dot::Isa>::template prefetch<vectors>(task, row + r, place);
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
        // The last stretch may be incomplete; nothing after it is read.
        const std::int64_t rest = is_wide ? 0 : task.in_features - whole * stretch;
        if (rest > 0) {
            std::byte inputs[extent(rows)][extent(steps * group_bytes)] = {};
            for (int r = 0; r < rows; ++r) {
                for (std::int64_t i = 0; i < rest * group_bytes / Dot::group; ++i) inputs[r][i] = in[r * task.in_stride + i];
            }
            add(inputs[0], steps * group_bytes);
            weights += stretch_bytes;
            next += prefetches < lines ? prefetches * 64 : stretch_bytes;
        }
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
            Floats values[extent(vectors)];
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) values[i] = outputs.value(task, row + r, i, sums[r][i]);
            MatmulOutput<typename Dot::Isa>::template finish_row_of_few<vectors>(task, row + r, place, values);
        }
    }

    // Calls the tile that was instantiated for exactly `count` rows.
    template <int rows, int prefetches, class Task>
    static void tile_of(std::int64_t count, const Task& task, const PanelRun& run, std::int64_t row) {
        if (count == rows) {
            tile<rows, prefetches>(task, run, row);
        } else if constexpr (rows > 1) {
            tile_of<rows - 1, prefetches>(count, task, run, row);
        }
    }

    // Multiplies all rows with one panel, which begins at this place.
    template <class Task>
    static void run_panel(const Task& task, const std::byte* weights, const std::byte* next, std::int64_t place) {
        if constexpr (tiles) {
            if (task.rows >= tile_rows_least) return TileMatmul<Dot>::run(task, {weights, next, place});
        }
        const std::int64_t row_blocks = (task.rows + rows_max - 1) / rows_max;
        const std::int64_t share = stretches_of(task) * 64;
        std::int64_t row = 0;
        for (std::int64_t block = 0; block < row_blocks; ++block) {
            const std::int64_t row_end = task.rows * (block + 1) / row_blocks;
            // A few row blocks each prefetch all of the next panel while they compute; many prefetch a share of it each.
            if (row_blocks < lines) {
                tile_of<rows_max, lines>(row_end - row, task, {weights, next, place}, row);
            } else {
                tile_of<rows_max, 1>(row_end - row, task, {weights, next + block % lines * share, place}, row);
            }
            row = row_end;
        }
    }

    // Calls take(vector, bytes) for the weights of a panel, in the order in which they are multiplied.
    template <class Take>
    [[gnu::always_inline]] static inline void each_bytes(const DotTask& task, const std::byte* weights, const Take& take) {
        for (std::int64_t count = stretches_of(task); count > 0; --count) {
            const typename Dot::Stretch from{weights};
#pragma GCC unroll 32
            for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 32
                for (int i = 0; i < vectors; ++i) take(i, from.bytes(step, i));
            }
            weights += stretch_bytes;
        }
    }

    static void unpack(const DotTask& task, const std::byte* weights) {
        std::byte* to = task.scratch;
        each_bytes(
            task, weights, [&](int, const auto& bytes) __attribute__((always_inline)) {
                __builtin_memcpy(to, &bytes, sizeof bytes);
                to += sizeof bytes;
            });
    }

    // One tile holds all rows, so memory is the bottleneck.
    template <class Task>
    static void run_one_tile(const Task& task, std::int64_t panel_begin, std::int64_t panel_end) {
        const std::int64_t panel_bytes = stretches_of(task) * stretch_bytes;
        const auto at = [&](std::int64_t panel) __attribute__((always_inline)) { return task.panels + panel * panel_bytes; };
        const auto walk = [&](std::int64_t begin, std::int64_t end, const std::byte* next) __attribute__((always_inline)) {
            tile_of<rows_max, lines>(task.rows, task, {at(begin), next, begin * width, end - begin}, 0);
        };
        if (task.rows <= near_rows) {
            // The next weights are where the hardware prefetcher reads on anyway; lines further ahead would only use up its few outstanding
            // misses.
            ask_for_first(task.next);
            walk(panel_begin, panel_end, at(panel_begin) + near_bytes);
            return;
        }
        // A whole panel ahead, or several small ones.
        std::int64_t ahead = (near_bytes + panel_bytes - 1) / panel_bytes;
        if (ahead > panel_end - panel_begin) ahead = panel_end - panel_begin;
        walk(panel_begin, panel_end - ahead, at(panel_begin + ahead));
        walk(panel_end - ahead, panel_end, task.next == nullptr ? at(panel_end) : task.next);
    }

    // Task: DotTask or ActivatedDotTask.
    template <class Task>
    static void matmul(const Task& task, std::int64_t panel_begin, std::int64_t panel_end) {
        if constexpr (tiles) {
            if (task.rows >= tile_rows_least) return TileMatmul<Dot>::matmul(task, panel_begin, panel_end);
        }
        if (task.rows <= rows_max) return run_one_tile(task, panel_begin, panel_end);
        const std::int64_t panel_bytes = stretches_of(task) * stretch_bytes;
        for (std::int64_t panel = panel_begin; panel < panel_end; ++panel) {
            const std::byte* const weights = task.panels + panel * panel_bytes;
            const std::byte* const next = task.next == nullptr || panel + 1 < panel_end ? weights + panel_bytes : task.next;
            if constexpr (unpacks) {
                unpack(task, weights);
                DotMatmul<typename Dot::Unpacked>::run_panel(task, task.scratch, next, panel * width);
            } else {
                run_panel(task, weights, next, panel * width);
            }
        }
    }

    // Like Peak, for the dot instruction.
    static double operations(std::int64_t turns) {
        if constexpr (tiles) return TileMatmul<Dot>::operations(turns);
        if constexpr (widens) return DotMatmul<typename WideMatmul<Dot>::Wide>::operations(turns);
        constexpr int sums_count = 12;
        Sums start[extent(sums_count)] = {};
        asm volatile("" : "+m"(start));  // otherwise equal sums would be computed once
        Sums sums[extent(sums_count)];
#pragma GCC unroll 32
        for (int i = 0; i < sums_count; ++i) sums[i] = start[i];
        std::byte bytes[extent(lanes * 4)];
        for (int i = 0; i < lanes * 4; ++i) bytes[i] = static_cast<std::byte>(i % 3);
        typename Dot::Weights w[extent(sums_count)];
        for (int i = 0; i < sums_count; ++i) w[i] = Dot::load(bytes);
        const auto x = Dot::all(0x01010101U);
        for (std::int64_t turn = 0; turn < turns; ++turn) {
            if constexpr (is_wide) asm volatile("" : "+m"(w));  // otherwise products would be computed once for all turns
#pragma GCC unroll 32
            for (int i = 0; i < sums_count; ++i) Dot::add(sums[i], w[i], x);
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
    static constexpr ActivatedDotKernel activated() {
        if constexpr (has_tiles) return matmul<ActivatedDotTask>;
        return nullptr;
    }
    static constexpr const WideKernels* wide() {
        if constexpr (widens) return &WideMatmul<Dot>::table;
        return nullptr;
    }
    static constexpr DotKernels table{.name = Dot::name,
                                      .storage = Dot::storage,
                                      .group = Dot::group,
                                      .panel_width = width,
                                      .unpacked = unpacked(),
                                      .wide = wide(),
                                      .row_chunk = has_tiles ? tile_row_chunk : common_row_chunk,
                                      .panel_group = tiles ? tile_panel_group : 1,
                                      .whole_rows = has_tiles ? 128 : 64,
                                      .matmul = matmul<DotTask>,
                                      .activated = activated(),
                                      .operations = operations};
};

}  // namespace lorry::kernels::cpu
