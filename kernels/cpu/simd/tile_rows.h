// Computes the sums of tile_matmul.h for a few rows of bfloat16 with vector instructions: the weights are read once, in order, so that the
// product waits only for memory. The bits are those of the tiles: for every 32 inputs, the first and the second elements of the pairs are
// added up separately; both sums are added, and the result is added to the output's sum. Denormals count as zero. Instantiated by table.h.
// Source: as tile_block.h, TDPBF16PS.
#pragma once

#include "kernels/cpu/simd/tile_matmul.h"

namespace lorry::kernels::cpu {

template <class Dot>
struct TileRows {
    using V = Simd<typename Dot::Isa>;
    using Floats = typename V::Floats;
    using Tiles = TileMatmul<Dot>;
    static constexpr int vectors = Dot::vectors;
    static constexpr int lanes = Dot::Isa::lanes;
    static constexpr std::int64_t width = Tiles::width;
    // With more rows, widening and multiplying take longer than reading.
    static constexpr int rows_max = 4;

    // Both elements of the pairs, as float32.
    struct Pairs {
        Floats first;
        Floats second;
    };
    [[gnu::always_inline]] static inline Pairs widened(typename V::Bits pairs) {
        const auto first = pairs << 16;
        const auto second = pairs & 0xFFFF0000U;
        Pairs wide;
        __builtin_memcpy(&wide.first, &first, sizeof first);
        __builtin_memcpy(&wide.second, &second, sizeof second);
        return wide;
    }

    template <int rows>
    struct Sums {
        Floats first[extent(rows)][extent(vectors)];
        Floats second[extent(rows)][extent(vectors)];
    };
    // Adds the products of one group: a pair of inputs of each row.
    template <int rows>
    [[gnu::always_inline]] static inline void add(Sums<rows>& sums, const std::byte* in, std::int64_t stride, const std::byte* panel) {
        Pairs w[extent(vectors)];
#pragma GCC unroll 2
        for (int i = 0; i < vectors; ++i) {
            typename V::Bits pairs;
            __builtin_memcpy(&pairs, panel + i * lanes * 4, sizeof pairs);
            w[i] = widened(pairs);
            __builtin_prefetch(panel + near_bytes + i * lanes * 4, 0, 2);
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) {
            std::uint32_t pair;
            __builtin_memcpy(&pair, in + r * stride, sizeof pair);
            const Pairs x = widened(pair - typename V::Bits{});
#pragma GCC unroll 2
            for (int i = 0; i < vectors; ++i) {
                sums.first[r][i] = V::fma(x.first, w[i].first, sums.first[r][i]);
                sums.second[r][i] = V::fma(x.second, w[i].second, sums.second[r][i]);
            }
        }
    }

    // totals: [rows][width]. Called with denormals off; noipa, so that the compiler moves no instruction to where they are on.
    template <int rows>
    [[gnu::noipa]] static void add_up(const DotTask& task, const std::byte* panel, float* totals) {
        Floats total[extent(rows)][extent(vectors)] = {};
        const std::byte* in = task.in;
        const typename Tiles::InputLines inputs(task.in_features);
        const auto add_line = [&](const std::byte* line, std::int64_t stride, std::int64_t groups) __attribute__((always_inline)) {
            Sums<rows> sums = {};
            for (std::int64_t group = 0; group < groups; ++group, panel += Tiles::group_bytes)
                add<rows>(sums, line + group * 4, stride, panel);
#pragma GCC unroll 4
            for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 2
                for (int i = 0; i < vectors; ++i) total[r][i] += sums.first[r][i] + sums.second[r][i];
            }
        };
        for (std::int64_t line = 0; line < inputs.whole; ++line, in += Tiles::line_bytes)
            add_line(in, task.in_stride, Tiles::Block::groups_whole);
        if (inputs.rest_bytes % 4 != 0) {
            // As in tile_matmul.h: nothing after a row's last input is read.
            std::byte rest[extent(rows)][extent(Tiles::line_bytes)] = {};
            for (int r = 0; r < rows; ++r) __builtin_memcpy(rest[r], in + r * task.in_stride, static_cast<std::size_t>(inputs.rest_bytes));
            add_line(rest[0], Tiles::line_bytes, inputs.rest_groups());
        } else if (inputs.rest_bytes > 0) {
            add_line(in, task.in_stride, inputs.rest_groups());
        }
        for (int r = 0; r < rows; ++r) {
            for (int i = 0; i < vectors; ++i) V::store(totals + r * width + i * lanes, total[r][i]);
        }
    }

    template <int rows, class Task>
    static void run(const Task& task, std::int64_t panel_begin, std::int64_t panel_end) {
        constexpr unsigned no_denormals = 0x8040;  // FTZ and DAZ; rounding to nearest stays
        const std::int64_t panel_bytes = Tiles::panel_bytes_of(task.in_features);
        ask_for_first(task.next);
        for (std::int64_t panel = panel_begin; panel < panel_end; ++panel) {
            float totals[extent(rows)][static_cast<std::size_t>(width)];
            const unsigned before = __builtin_ia32_stmxcsr();
            __builtin_ia32_ldmxcsr(before | no_denormals);
            add_up<rows>(task, task.panels + panel * panel_bytes, totals[0]);
            __builtin_ia32_ldmxcsr(before);
            for (int r = 0; r < rows; ++r) {
                Floats values[extent(vectors)];
                for (int i = 0; i < vectors; ++i) values[i] = V::load(totals[r] + i * lanes);
                MatmulOutput<typename Dot::Isa>::template finish_row_of_few<vectors>(task, r, panel * width, values);
            }
        }
    }

    // Calls run for exactly task.rows rows.
    template <int rows, class Task>
    static void run_of(const Task& task, std::int64_t panel_begin, std::int64_t panel_end) {
        if (task.rows == rows) {
            run<rows>(task, panel_begin, panel_end);
        } else if constexpr (rows > 1) {
            run_of<rows - 1>(task, panel_begin, panel_end);
        }
    }

    // Task: DotTask or ActivatedDotTask.
    template <class Task>
    static void matmul(const Task& task, std::int64_t panel_begin, std::int64_t panel_end) {
        if (task.rows > rows_max) return Tiles::matmul(task, panel_begin, panel_end);
        run_of<rows_max>(task, panel_begin, panel_end);
    }

    // A panel of one vector has no room for two parts.
    static constexpr ActivatedDotKernel activated() {
        if constexpr (vectors == 2) return matmul<ActivatedDotTask>;
        return nullptr;
    }
    static constexpr DotKernels table{.name = Dot::name,
                                      .storage = Dot::storage,
                                      .group = Dot::group,
                                      .panel_width = width,
                                      .row_chunk = tile_row_chunk,
                                      .panel_group = tile_panel_group,
                                      .rows_together = Tiles::Block::rows_max,
                                      .matmul = matmul<DotTask>,
                                      .activated = activated(),
                                      .updates = Tiles::updates,
                                      .operations = Tiles::operations};
};

}  // namespace lorry::kernels::cpu
