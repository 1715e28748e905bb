// What attention.h's plan has in common for caches whose queries and weights are narrowed first: of bfloat16 pairs and of int8. A `Way` has
// rows_max and
//   narrow_queries(task, row)                                 makes a row's queries
//   block_scores<rows, blocks>(task, span, block, row)        makes the scores of `rows` rows and `blocks` blocks
//   weigh(task, span, row)                                    turns a row's scores into weights, in their place
//   weighted_values<rows, vectors>(task, span, row, d)        makes the outputs from dimension `d` on
#pragma once

#include "kernels/cpu/attention.h"

namespace lorry::kernels::cpu {

template <class Way, class Isa>
struct TiledAttention {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    using Plain = Attention<Isa>;
    using Span = typename Plain::Span;
    static constexpr int lanes = Isa::lanes;

    static const std::byte* keys_of(const AttentionTask& task, std::int64_t block) {
        return task.keys + task.blocks[block] * task.block_bytes;
    }

    // Replaces the scores of tokens that the row does not see by -inf; returns the largest of the others.
    static float hide_unseen(const AttentionTask& task, const Span& span, std::int64_t row) {
        const auto sight = Plain::sight_of(task, row);
        float* const scores = task.scores + row * task.score_stride;
        const std::int64_t size = (span.block_end - span.block_first) * kv_block_size;
        const std::int64_t origin = span.block_first * kv_block_size;
        Floats largest = V::all(-__builtin_inff());
        for (std::int64_t i = 0; i < size; i += lanes) {
            Floats x = V::load(scores + i);
            if (sight.hides(origin + i)) {
                x = sight.seen(x, origin + i);
                V::store(scores + i, x);
            }
            largest = V::larger(x, largest);
        }
        return V::largest(largest);
    }

    template <int rows, int blocks>
    static void block_scores_of(std::int64_t count, const AttentionTask& task, const Span& span, std::int64_t block, std::int64_t row) {
        if (count == rows) {
            Way::template block_scores<rows, blocks>(task, span, block, row);
        } else if constexpr (rows > 1) {
            block_scores_of<rows - 1, blocks>(count, task, span, block, row);
        }
    }

    template <int rows>
    static void weighted_values_of(std::int64_t count, const AttentionTask& task, const Span& span, std::int64_t row) {
        if (count == rows) {
            // Few rows take more dimensions at once, for enough sums in flight. value_stride is a multiple of 16, so of the lanes.
            constexpr int vectors = rows * 2 <= Way::rows_max ? 4 : 2;
            std::int64_t d = 0;
            for (; d + vectors * lanes <= task.value_stride; d += vectors * lanes) {
                Way::template weighted_values<rows, vectors>(task, span, row, d);
            }
            for (; d < task.value_stride; d += lanes) Way::template weighted_values<rows, 1>(task, span, row, d);
        } else if constexpr (rows > 1) {
            weighted_values_of<rows - 1>(count, task, span, row);
        }
    }

    // Calls work(row, count) for tiles of at most rows_max rows.
    template <class Work>
    static void each_tile(std::int64_t rows, const Work& work) {
        const std::int64_t tiles = (rows + Way::rows_max - 1) / Way::rows_max;
        for (std::int64_t tile = 0, row = 0; tile < tiles; ++tile) {
            const std::int64_t row_end = rows * (tile + 1) / tiles;
            work(row, row_end - row);
            row = row_end;
        }
    }

    static void run(const AttentionTask& task) {
        const Span span = Plain::span_of(task);
        const std::int64_t rows = task.positions * task.group;
        for (std::int64_t row = 0; row < rows; ++row) Way::narrow_queries(task, row);
        std::int64_t block = span.block_first;
        for (; block + 2 <= span.block_end; block += 2) {
            each_tile(rows,
                      [&](std::int64_t row, std::int64_t count) { block_scores_of<Way::rows_max, 2>(count, task, span, block, row); });
        }
        if (block < span.block_end) {
            each_tile(rows,
                      [&](std::int64_t row, std::int64_t count) { block_scores_of<Way::rows_max, 1>(count, task, span, block, row); });
        }
        for (std::int64_t row = 0; row < rows; ++row) Way::weigh(task, span, row);
        each_tile(rows, [&](std::int64_t row, std::int64_t count) { weighted_values_of<Way::rows_max>(count, task, span, row); });
    }
};

}  // namespace lorry::kernels::cpu
