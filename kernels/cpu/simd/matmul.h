// Dense matmul over prepacked panels, with tiles of rows x columns held in registers. Instantiated by table.h.
//
// Panels are the outer loop and row blocks the inner one, so weights are read once per call. An output is one chain of multiply-adds over
// in_features whatever the tile's shape, so a row's result does not depend on the other rows.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/matmul_output.h"
#include "kernels/cpu/simd/simd.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct Matmul {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    static constexpr int lanes = Isa::lanes;

    // The largest row block whose sums, with two weight vectors and one input, still fit in the registers.
    static constexpr int rows_max = Isa::registers == 32 ? 12 : 6;
    static constexpr int shrink_chains = 4;
    static constexpr std::int64_t few_inputs = 64;
    static constexpr int shrink_rows_max = rows_max / 2;

    template <class Storage>
    struct Tile {
        const float* in;
        std::int64_t in_stride;
        const Storage* weights;       // weights of the tile's first panel
        std::int64_t panel_elements;  // distance from one panel to the next
        std::int64_t depth;           // in_features
        const char* next;             // what to prefetch: a share of the data after this panel
        std::int64_t next_step;       // bytes to prefetch per in_feature
    };

    // Adds to `sums` the products of one in_feature: `rows` inputs times `vectors` vectors of each panel. What is fewer, inputs or vectors,
    // stays in registers.
    template <class Storage, int rows, int sums_per_row, int vectors>
    [[gnu::always_inline]] static void add_products(Floats (&sums)[extent(rows)][extent(sums_per_row)], const float* in,
                                                    std::int64_t in_stride, const Storage* weights, std::int64_t panel_elements) {
        if constexpr (sums_per_row > rows) {
            Floats x[extent(rows)];
#pragma GCC unroll 32
            for (int r = 0; r < rows; ++r) x[r] = V::all(in[r * in_stride]);
#pragma GCC unroll 32
            for (int i = 0; i < sums_per_row; ++i) {
                const Floats w = V::load(weights + (i / vectors) * panel_elements + (i % vectors) * lanes);
#pragma GCC unroll 32
                for (int r = 0; r < rows; ++r) sums[r][i] = V::fma(x[r], w, sums[r][i]);
            }
        } else {
            Floats w[extent(sums_per_row)];
#pragma GCC unroll 32
            for (int i = 0; i < sums_per_row; ++i) w[i] = V::load(weights + (i / vectors) * panel_elements + (i % vectors) * lanes);
#pragma GCC unroll 32
            for (int r = 0; r < rows; ++r) {
                const Floats x = V::all(in[r * in_stride]);
#pragma GCC unroll 32
                for (int i = 0; i < sums_per_row; ++i) sums[r][i] = V::fma(x, w[i], sums[r][i]);
            }
        }
    }

    // Computes rows [row, row + rows) of `panels` panels from `column` on, each `vectors` vectors wide; every sum is split into `chains`
    // chains.
    template <class Storage, int rows, int panels, int vectors, int chains>
    [[gnu::noinline]] static void tile(const MatmulTask& task, const Tile<Storage>& at, std::int64_t row, std::int64_t column) {
        constexpr int width = vectors * lanes;
        constexpr int sums_per_row = panels * vectors;
        Floats sums[extent(chains)][extent(rows)][extent(sums_per_row)];
#pragma GCC unroll 32
        for (int chain = 0; chain < chains; ++chain) {
#pragma GCC unroll 32
            for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 32
                for (int i = 0; i < sums_per_row; ++i) sums[chain][r][i] = Floats{};
            }
        }
        const float* in = at.in + row * at.in_stride;
        const Storage* weights = at.weights;
        // Prefetches two streams alternately: with one stream of lines, a core has too few misses in flight to use the memory's full
        // bandwidth.
        const char* next = at.next;
        const std::int64_t half = at.next_step * at.depth / 2;
        const auto step = [&]<int offset>() __attribute__((always_inline)) {
            constexpr int chain = offset % chains;
            const char* const ahead = offset % 2 == 0 ? next : next + half;
            __builtin_prefetch(ahead, 0, 2);
            if (at.next_step > 64) __builtin_prefetch(ahead + 64, 0, 2);
            if constexpr (offset % 2 == 1) next += at.next_step;
            add_products<Storage, rows, sums_per_row, vectors>(sums[chain], in + offset, at.in_stride, weights + offset * width,
                                                               at.panel_elements);
        };
        std::int64_t k = 0;
        constexpr int stride = chains == 4 ? 4 : 2;
        for (; k + stride <= at.depth; k += stride) {
            step.template operator()<0>();
            step.template operator()<1>();
            if constexpr (stride == 4) {
                step.template operator()<2>();
                step.template operator()<3>();
            }
            in += stride;
            weights += stride * width;
        }
        if (k < at.depth) step.template operator()<0>();
        if constexpr (stride == 4) {
            if (k + 1 < at.depth) step.template operator()<1>();
            if (k + 2 < at.depth) step.template operator()<2>();
        }
        if constexpr (chains == 4) {
#pragma GCC unroll 32
            for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 32
                for (int i = 0; i < sums_per_row; ++i) {
                    sums[0][r][i] = (sums[0][r][i] + sums[1][r][i]) + (sums[2][r][i] + sums[3][r][i]);
                }
            }
        }
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 32
            for (int panel = 0; panel < panels; ++panel) {
                MatmulOutput<Isa>::template finish<vectors>(task, row + r, column + panel * width, sums[0][r] + panel * vectors);
            }
        }
    }

    // Bytes of a panel per in_feature.
    template <class Storage, int width>
    static constexpr std::int64_t panel_step = width* static_cast<std::int64_t>(sizeof(Storage));

    // Panels that a block of `rows` rows processes side by side, to have enough sums in flight to hide the latency of a multiply-add.
    static constexpr int panels_for(int rows) { return rows * 4 <= rows_max ? 4 : rows * 2 <= rows_max ? 2 : 1; }

    // Calls the tile that was instantiated for exactly `count` rows.
    template <class Storage, int rows, int panels, int vectors, int chains>
    static void tile_of(std::int64_t count, const MatmulTask& task, const Tile<Storage>& at, std::int64_t row, std::int64_t column) {
        if (count == rows) {
            tile<Storage, rows, panels, vectors, chains>(task, at, row, column);
        } else if constexpr (rows > 1) {
            tile_of<Storage, rows - 1, panels, vectors, chains>(count, task, at, row, column);
        }
    }

    // A few rows that fit one block of exactly `rows`: several panels at once. Returns the first panel not processed.
    template <class Storage, int rows, int vectors>
    static std::int64_t few_rows(const MatmulTask& task, std::int64_t begin, std::int64_t end) {
        if (task.rows == rows) {
            constexpr int panels = panels_for(rows);
            constexpr int width = vectors * lanes;
            const std::int64_t panel_elements = task.in_features * width;
            const Storage* const weights = static_cast<const Storage*>(task.panels);
            std::int64_t panel = begin;
            for (; panel + panels <= end; panel += panels) {
                const Storage* const here = weights + panel * panel_elements;
                tile<Storage, rows, panels, vectors, 1>(
                    task,
                    {task.in, task.in_stride, here, panel_elements, task.in_features,
                     reinterpret_cast<const char*>(here + panels * panel_elements), panel_step<Storage, width>},
                    0, panel * width);
            }
            return panel;
        }
        if constexpr (rows > 1) return few_rows<Storage, rows - 1, vectors>(task, begin, end);
        return begin;
    }

    template <class Storage, int vectors, int chains>
    static void run_as(const MatmulTask& task, std::int64_t begin, std::int64_t end) {
        constexpr int width = vectors * lanes;
        constexpr int most = chains == 1 ? rows_max : shrink_rows_max;
        if constexpr (chains == 1) begin = few_rows<Storage, rows_max / 2, vectors>(task, begin, end);
        const std::int64_t panel_elements = task.in_features * width;
        const std::int64_t row_blocks = (task.rows + most - 1) / most;
        // Each row block prefetches its share of the next panel; if the first one prefetched it all, it would wait for memory and the
        // others would compute without prefetching.
        const std::int64_t share = (panel_step<Storage, width> + row_blocks - 1) / row_blocks;
        const auto run_block = [&](std::int64_t panel, std::int64_t block) {
            const Storage* const weights = static_cast<const Storage*>(task.panels) + panel * panel_elements;
            const auto* const next = reinterpret_cast<const char*>(weights + panel_elements);
            const Tile<Storage> at{
                task.in, task.in_stride, weights, panel_elements, task.in_features, next + block * share * task.in_features, share};
            const std::int64_t row = task.rows * block / row_blocks;
            tile_of<Storage, most, 1, vectors, chains>(task.rows * (block + 1) / row_blocks - row, task, at, row, panel * width);
        };
        // With few inputs (LoRA's B) there is less weight than output, so outputs are visited in memory order.
        if (task.in_features <= few_inputs) {
            for (std::int64_t block = 0; block < row_blocks; ++block) {
                for (std::int64_t panel = begin; panel < end; ++panel) run_block(panel, block);
            }
            return;
        }
        for (std::int64_t panel = begin; panel < end; ++panel) {
            for (std::int64_t block = 0; block < row_blocks; ++block) run_block(panel, block);
        }
    }

    static void matmul(const MatmulTask& task, std::int64_t panel_begin, std::int64_t panel_end) {
        if (task.bfloat16) {
            run_as<Bf16, 2, 1>(task, panel_begin, panel_end);
        } else {
            run_as<float, 2, 1>(task, panel_begin, panel_end);
        }
    }
    static void shrink(const MatmulTask& task, std::int64_t panel_begin, std::int64_t panel_end) {
        if (task.bfloat16) {
            run_as<Bf16, 1, shrink_chains>(task, panel_begin, panel_end);
        } else {
            run_as<float, 1, shrink_chains>(task, panel_begin, panel_end);
        }
    }
};

}  // namespace lorry::kernels::cpu
