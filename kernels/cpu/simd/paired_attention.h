// Attention over a cache of bfloat16 pairs, for processors that multiply them: the plan of attention.h with queries and weights rounded to
// bfloat16. Instantiated by table.h over an Isa that has dot(sums, pairs, pairs).
#pragma once

#include "kernels/cpu/simd/plain_attention.h"

namespace lorry::kernels::cpu {

// What the products with bfloat16 pairs read: queries and the softmax's weights, rounded to bfloat16.
template <class Isa>
struct PairedRows {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    using Plan = AttentionPlan<Isa>;
    using Span = typename Plan::Span;
    static constexpr int lanes = Isa::lanes;
    // A single row would wait for its maximum and sum as long as several rows do.
    static constexpr int weigh_rows = 4;

    // A row's weights replace its scores.
    static const std::byte* weights_of(const AttentionTask& task, std::int64_t row) {
        return reinterpret_cast<const std::byte*>(task.scores + row * task.score_stride);
    }

    // Makes a row's queries, multiplied by the scale of the scores.
    static void narrow_queries(const AttentionTask& task, std::int64_t row, const float* from) {
        auto* const to = reinterpret_cast<Bf16*>(task.queries) + row * task.head_dim;
        for (std::int64_t d = 0; d < task.head_dim; d += lanes)
            V::store_up_to(to + d, V::load_up_to(from + d, task.head_dim - d) * task.scale, task.head_dim - d);
    }

    // Turns scores into bfloat16 weights of at most 1; after them it stores the factor that makes a row's weights add up to 1.
    template <int rows>
    [[gnu::noinline]] static void weigh(const AttentionTask& task, const Span& span, std::int64_t row) {
        const std::int64_t size = span.scores();
        float* scores[extent(rows)];
        Floats most[extent(rows)];
        Floats sums[extent(rows)] = {};
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) {
            scores[r] = task.scores + (row + r) * task.score_stride;
            most[r] = V::all(Plan::hide_unseen(task, span, row + r));
        }
        // The weights are half as wide as the scores, so each vector is read before it is overwritten.
        for (std::int64_t i = 0; i < size; i += lanes) {
#pragma GCC unroll 4
            for (int r = 0; r < rows; ++r) {
                const Floats weight = VectorMath<Isa>::exp(V::load(scores[r] + i) - most[r]);
                sums[r] += weight;
                V::store(reinterpret_cast<Bf16*>(scores[r]) + i, weight);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) scores[r][size / 2] = 1.0F / Plan::total_of(task, row + r, sums[r], most[r]);
    }
};

template <class Isa>
struct PairedAttention : PairedRows<Isa> {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    using Pairs = typename Isa::Pairs;
    using Plan = AttentionPlan<Isa>;
    using Span = typename Plan::Span;
    static constexpr int lanes = Isa::lanes;
    static_assert(lanes == kv_block_size, "a vector holds a pair of each token of a block");
    static constexpr int rows_max = 12;
    using PairedRows<Isa>::weights_of;
    static constexpr std::int64_t two_blocks_rows = INT64_MAX;
    static constexpr std::int64_t pair_bytes = 4;
    static constexpr std::int64_t line_bytes = lanes * pair_bytes;

    [[gnu::always_inline]] static inline std::uint32_t pair_at(const std::byte* from) {
        std::uint32_t pair;
        __builtin_memcpy(&pair, from, sizeof pair);
        return pair;
    }
    [[gnu::always_inline]] static inline Pairs load(const std::byte* from) {
        Pairs x;
        __builtin_memcpy(&x, from, sizeof x);
        return x;
    }
    // The pairs with the first or second element of each replaced by zero.
    [[gnu::always_inline]] static inline Pairs masked(const std::byte* from, std::uint32_t mask) {
        typename V::Bits x;
        __builtin_memcpy(&x, from, sizeof x);
        x &= mask;
        return load(reinterpret_cast<const std::byte*>(&x));
    }

    // scores[row, 16 tokens of each of `blocks` blocks] = q . k for `rows` rows from `row` on. Prefetches the values of these blocks and
    // the keys of the next ones.
    template <int rows, int blocks>
    [[gnu::noinline]] static void block_scores(const AttentionTask& task, const Span& span, std::int64_t block, std::int64_t row) {
        const std::byte* keys[extent(blocks)];
        const std::byte* next[extent(blocks)];
        for (int i = 0; i < blocks; ++i) {
            keys[i] = Plan::keys_of(task, block + i);
            next[i] = Plan::next_keys_of(task, span, block + i, blocks);
        }
        Floats sums[extent(rows)][extent(blocks)];
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
            for (int i = 0; i < blocks; ++i) sums[r][i] = Floats{};
        }
        const std::int64_t query_bytes = task.head_dim * 2;
        const std::byte* q = task.queries + row * query_bytes;
        for (std::int64_t pair = 0; pair < task.head_dim / 2; ++pair) {
            const std::int64_t offset = pair * line_bytes;
            Pairs k[extent(blocks)];
#pragma GCC unroll 4
            for (int i = 0; i < blocks; ++i) {
                k[i] = load(keys[i] + offset);
                __builtin_prefetch(keys[i] + task.value_offset + offset, 0, 2);
                __builtin_prefetch(next[i] + offset, 0, 2);
            }
#pragma GCC unroll 32
            for (int r = 0; r < rows; ++r) {
                const Pairs x = Isa::all_pairs(pair_at(q + r * query_bytes));
#pragma GCC unroll 4
                for (int i = 0; i < blocks; ++i) sums[r][i] = Isa::dot(sums[r][i], k[i], x);
            }
            q += pair_bytes;
        }
        float* const scores = Plan::scores_of(task, span, block, row);
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
            for (int i = 0; i < blocks; ++i) V::store(scores + r * task.score_stride + i * lanes, sums[r][i]);
        }
    }

    // out[row, dims d … d + vectors * lanes) = sum over tokens of weight * value, for `rows` rows from `row` on.
    template <int rows, int vectors>
    [[gnu::noinline]] static void weighted_values(const AttentionTask& task, const Span& span, std::int64_t row, std::int64_t d) {
        Floats sums[extent(rows)][extent(vectors)];
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
            for (int i = 0; i < vectors; ++i) sums[r][i] = Floats{};
        }
        const std::int64_t weight_stride = task.score_stride * static_cast<std::int64_t>(sizeof(float));
        for (std::int64_t block = span.block_first; block < span.block_end; ++block) {
            const std::int64_t origin = block * kv_block_size;
            const std::int64_t begin = span.token_first > origin ? span.token_first - origin : 0;
            const std::int64_t end = span.token_end - origin < kv_block_size ? span.token_end - origin : kv_block_size;
            const std::byte* const values = Plan::keys_of(task, block) + task.value_offset + d * pair_bytes;
            const std::byte* const weights = weights_of(task, row) + (block - span.block_first) * kv_block_size * 2;
            const auto add = [&](std::int64_t token, auto take) __attribute__((always_inline)) {
                Pairs v[extent(vectors)];
#pragma GCC unroll 4
                for (int i = 0; i < vectors; ++i) v[i] = take(values + token / 2 * task.value_stride * pair_bytes + i * line_bytes);
#pragma GCC unroll 32
                for (int r = 0; r < rows; ++r) {
                    const Pairs x = Isa::all_pairs(pair_at(weights + r * weight_stride + token * 2));
#pragma GCC unroll 4
                    for (int i = 0; i < vectors; ++i) sums[r][i] = Isa::dot(sums[r][i], v[i], x);
                }
            };
            // At either end, only half of a pair may exist.
            std::int64_t token = begin;
            if (begin % 2 == 1) {
                add(
                    begin - 1, [](const std::byte* from) __attribute__((always_inline)) { return masked(from, 0xFFFF0000U); });
                token = begin + 1;
            }
            for (; token + 2 <= end; token += 2) add(token, load);
            if (token < end)
                add(
                    token, [](const std::byte* from) __attribute__((always_inline)) { return masked(from, 0xFFFFU); });
        }
        typename Plan::RowWalk walk(task, row);
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r, walk.advance()) {
            const float inverse = task.scores[(row + r) * task.score_stride + span.scores() / 2];
#pragma GCC unroll 4
            for (int i = 0; i < vectors; ++i) sums[r][i] *= inverse;
            Plan::template store_row<vectors>(task, walk.out(), d, sums[r]);
        }
    }

    static void run(std::span<const AttentionTask> tasks) {
        if (tasks.front().layout == KvLayout::bfloat16_pairs) {
            TiledAttention<PairedAttention, Isa>::run_all(tasks);
        } else {
            run_plain_attention<Isa>(tasks);
        }
    }
};

}  // namespace lorry::kernels::cpu
