// Attention over a cache of float32, or of bfloat16 that is widened to float32: the plan of attention.h without further rounding.
// Instantiated by table.h; paired_attention.h uses it for other layouts.
#pragma once

#include "kernels/cpu/simd/attention.h"

namespace lorry::kernels::cpu {

template <class Isa, class Storage>
struct PlainAttention {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    using Plan = AttentionPlan<Isa>;
    using Span = typename Plan::Span;
    static constexpr int lanes = Isa::lanes;
    static constexpr int block_vectors = Plan::block_vectors;
    static constexpr int rows_max = Isa::registers == 32 ? 12 : lanes == 8 ? 6 : 3;
    static constexpr std::int64_t two_blocks_rows = rows_max / 2;

    static void narrow_queries(const AttentionTask&, std::int64_t, const float*) {}

    // scores[row, 16 tokens of each of `blocks` blocks] = q . k for `rows` rows from `row` on. Prefetches the values of these blocks and
    // the keys of the next ones.
    template <int rows, int blocks>
    [[gnu::noinline]] static void block_scores(const AttentionTask& task, const Span& span, std::int64_t block, std::int64_t row) {
        constexpr int vectors = blocks * block_vectors;
        const Storage* keys[extent(blocks)];
        const Storage* ahead[extent(2 * blocks)];
        for (int i = 0; i < blocks; ++i) {
            const std::byte* const here = Plan::keys_of(task, block + i);
            keys[i] = reinterpret_cast<const Storage*>(here);
            ahead[i] = reinterpret_cast<const Storage*>(here + task.value_offset);
            ahead[blocks + i] = reinterpret_cast<const Storage*>(Plan::next_keys_of(task, span, block + i, blocks));
        }
        const float* q[extent(rows)];
        typename Plan::RowWalk walk(task, row);
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r, walk.advance()) q[r] = walk.query();
        Floats sums[extent(rows)][extent(vectors)];
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) sums[r][i] = Floats{};
        }
        for (std::int64_t d = 0; d < task.head_dim; ++d) {
            const std::int64_t offset = d * kv_block_size;
#pragma GCC unroll 4
            for (int i = 0; i < 2 * blocks; ++i) __builtin_prefetch(ahead[i] + offset, 0, 2);
            Floats k[extent(vectors)];
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) k[i] = V::load(keys[i / block_vectors] + offset + i % block_vectors * lanes);
#pragma GCC unroll 32
            for (int r = 0; r < rows; ++r) {
                const Floats x = V::all(q[r][d]);
#pragma GCC unroll 32
                for (int i = 0; i < vectors; ++i) sums[r][i] = V::fma(x, k[i], sums[r][i]);
            }
        }
        float* const scores = Plan::scores_of(task, span, block, row);
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) V::store(scores + r * task.score_stride + i * lanes, sums[r][i] * task.scale);
        }
    }

    // Turns a row's scores into weights that add up to 1.
    static constexpr int weigh_rows = 1;
    template <int>
    static void weigh(const AttentionTask& task, const Span& span, std::int64_t row) {
        float* const scores = task.scores + row * task.score_stride;
        const Floats most = V::all(Plan::hide_unseen(task, span, row));
        Floats sum{};
        for (std::int64_t i = 0; i < span.scores(); i += lanes) {
            const Floats weight = VectorMath<Isa>::exp(V::load(scores + i) - most);
            sum += weight;
            V::store(scores + i, weight);
        }
        const Floats inverse = V::all(1.0F / Plan::total_of(task, row, sum, most));
        for (std::int64_t i = 0; i < span.scores(); i += lanes) V::store(scores + i, V::load(scores + i) * inverse);
    }

    // out[row, dims d … d + vectors * lanes) = sum over tokens of weight * value, for `rows` rows from `row` on.
    template <int rows, int vectors>
    [[gnu::noinline]] static void weighted_values(const AttentionTask& task, const Span& span, std::int64_t row, std::int64_t d) {
        Floats sums[extent(rows)][extent(vectors)];
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) sums[r][i] = Floats{};
        }
        for (std::int64_t block = span.block_first; block < span.block_end; ++block) {
            const std::int64_t origin = block * kv_block_size;
            const std::int64_t begin = span.token_first > origin ? span.token_first - origin : 0;
            const std::int64_t end = span.token_end - origin < kv_block_size ? span.token_end - origin : kv_block_size;
            const Storage* const values = reinterpret_cast<const Storage*>(Plan::keys_of(task, block) + task.value_offset) + d;
            const float* const here = Plan::scores_of(task, span, block, row);
            for (std::int64_t t = begin; t < end; ++t) {
                Floats v[extent(vectors)];
#pragma GCC unroll 32
                for (int i = 0; i < vectors; ++i) v[i] = V::load(values + t * task.value_stride + i * lanes);
#pragma GCC unroll 32
                for (int r = 0; r < rows; ++r) {
                    const Floats x = V::all(here[r * task.score_stride + t]);
#pragma GCC unroll 32
                    for (int i = 0; i < vectors; ++i) sums[r][i] = V::fma(x, v[i], sums[r][i]);
                }
            }
        }
        typename Plan::RowWalk walk(task, row);
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r, walk.advance()) Plan::template store_row<vectors>(task, walk.out(), d, sums[r]);
    }
};

// Implements Kernels::attention.
template <class Isa>
void run_plain_attention(std::span<const AttentionTask> tasks) {
    if (tasks.front().layout == KvLayout::bfloat16) {
        TiledAttention<PlainAttention<Isa, Bf16>, Isa>::run_all(tasks);
    } else {
        TiledAttention<PlainAttention<Isa, float>, Isa>::run_all(tasks);
    }
}

}  // namespace lorry::kernels::cpu
