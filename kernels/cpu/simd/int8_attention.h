// Attention over an int8 cache: the plan of attention.h in integers. A query becomes an int8 row like a matmul's input, so that a score is
// an exact sum times a product of scales. A row's weights, each multiplied by its token's scale, become 15-bit integers of at most 32767,
// so that sums over the tokens of a stretch are exact as well. Instantiated by int8_*.cpp over an Isa that multiplies int8 in fours (dot)
// and, widened, in pairs (dot_pairs).
#pragma once

#include "kernels/cpu/simd/attention.h"
#include "kernels/cpu/simd/narrow.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct Int8Attention {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    using Ints = typename V::Ints;
    using Bytes = typename Vectors<Isa::lanes * 4>::Octets;
    using Plan = AttentionPlan<Isa>;
    using Span = typename Plan::Span;
    static constexpr int lanes = Isa::lanes;
    static constexpr int block_vectors = Plan::block_vectors;
    static constexpr int rows_max = Isa::registers == 32 ? 12 : 2;
    // A single row would wait for its maxima and sums as long as several rows do.
    static constexpr int weigh_rows = Isa::registers == 32 ? 4 : 1;
    static constexpr std::int64_t two_blocks_rows = INT64_MAX;
    static constexpr std::int64_t group_bytes = kv_block_size * 4;  // four dimensions of a block's keys
    static constexpr std::int64_t pair_bytes = 2;
    // 512 tokens, at fixed positions: as many products of weights and values as int32 can sum.
    static constexpr std::int64_t stretch_blocks = 32;
    static constexpr float weight_most = 32767.0F;

    template <class Vector>
    [[gnu::always_inline]] static inline Vector load(const std::byte* from) {
        Vector x;
        __builtin_memcpy(&x, from, sizeof x);
        return x;
    }

    // Makes a row's queries. Zeros follow the last element, because whatever follows the keys is multiplied with them.
    static void narrow_queries(const AttentionTask& task, std::int64_t row, const float* from) {
        std::byte* const to = task.queries + row * int8_query_bytes(task.head_dim);
        __builtin_memset(to + int8_scale_offset(task.head_dim) - 4, 0, 4);
        Narrow<Isa>::to_int8(from, to, task.head_dim);
    }

    // scores[row, 16 tokens of each of `blocks` blocks] = q . k for `rows` rows from `row` on. Prefetches the values of these blocks and
    // the keys of the next ones.
    template <int rows, int blocks>
    [[gnu::noinline]] static void block_scores(const AttentionTask& task, const Span& span, std::int64_t block, std::int64_t row) {
        constexpr int vectors = blocks * block_vectors;
        const std::byte* keys[extent(blocks)];
        const std::byte* next[extent(blocks)];
        for (int i = 0; i < blocks; ++i) {
            keys[i] = Plan::keys_of(task, block + i);
            next[i] = Plan::next_keys_of(task, span, block + i, blocks);
        }
        typename Isa::Sums sums[extent(rows)][extent(vectors)];
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) sums[r][i] = typename Isa::Sums{};
        }
        const std::int64_t keys_bytes = int8_keys_bytes(task.head_dim);
        const std::int64_t query_bytes = int8_query_bytes(task.head_dim);
        const std::byte* const queries = task.queries + row * query_bytes;
        const std::byte* q = queries;
        for (std::int64_t offset = 0; offset < keys_bytes; offset += group_bytes, q += 4) {
            typename Isa::Weights k[extent(vectors)];
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) {
                k[i] = Isa::weights(load<Bytes>(keys[i / block_vectors] + offset + i % block_vectors * lanes * 4));
            }
#pragma GCC unroll 4
            for (int i = 0; i < blocks; ++i) {
                __builtin_prefetch(keys[i] + task.value_offset + offset, 0, 2);
                __builtin_prefetch(next[i] + offset, 0, 2);
            }
#pragma GCC unroll 32
            for (int r = 0; r < rows; ++r) {
                const auto x = Isa::all(load<std::uint32_t>(q + r * query_bytes));
#pragma GCC unroll 32
                for (int i = 0; i < vectors; ++i) Isa::dot(sums[r][i], k[i], x);
            }
        }
        float* const scores = Plan::scores_of(task, span, block, row);
#pragma GCC unroll 32
        for (int i = 0; i < vectors; ++i) {
            const std::byte* const beside = keys[i / block_vectors] + keys_bytes + i % block_vectors * lanes * 4;
            const auto scales = load<Floats>(beside);
            const auto offsets = load<Ints>(beside + kv_block_size * 4);
#pragma GCC unroll 32
            for (int r = 0; r < rows; ++r) {
                const float scale = load<float>(queries + r * query_bytes + int8_scale_offset(task.head_dim)) * task.scale;
                V::store(scores + r * task.score_stride + i * lanes,
                         __builtin_convertvector(Isa::ints(sums[r][i]) + offsets, Floats) * scales * scale);
            }
        }
    }

    // Turns scores into integer weights for the values; after them it stores the factor of a row's sums.
    template <int rows>
    [[gnu::noinline]] static void weigh(const AttentionTask& task, const Span& span, std::int64_t row) {
        const std::int64_t size = span.scores();
        float* scores[extent(rows)];
        Floats most[extent(rows)];
        Floats sums[extent(rows)] = {};
        Floats heaviest[extent(rows)] = {};
        Floats defects[extent(rows)] = {};  // keeps NaN and infinities visible in the result
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) {
            scores[r] = task.scores + (row + r) * task.score_stride;
            most[r] = V::all(Plan::hide_unseen(task, span, row + r));
        }
        std::int64_t i = 0;
        for (std::int64_t block = span.block_first; block < span.block_end; ++block) {
            const std::byte* const scales = Plan::keys_of(task, block) + task.value_offset + kv_block_size * task.value_stride;
#pragma GCC unroll 4
            for (int vector = 0; vector < block_vectors; ++vector, i += lanes) {
                const auto scale = load<Floats>(scales + vector * lanes * 4);
#pragma GCC unroll 4
                for (int r = 0; r < rows; ++r) {
                    const Floats share = VectorMath<Isa>::exp(V::load(scores[r] + i) - most[r]);
                    // The scale of an unseen token may be anything.
                    const Floats weight = share > 0.0F ? share * scale : Floats{};
                    sums[r] += share;
                    defects[r] = V::fma(weight, Floats{}, defects[r]);
                    heaviest[r] = V::larger(weight, heaviest[r]);
                    V::store(scores[r] + i, weight);
                }
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) {
            const float heavy = V::largest(heaviest[r]);
            const Floats inverse = V::all(heavy > 0.0F ? weight_most / heavy : 0.0F);
            // The weights are half as wide as the scores, so each vector is read before it is overwritten.
            for (i = 0; i < size; i += lanes) {
                const auto halves = __builtin_convertvector(Narrow<Isa>::rounded(V::load(scores[r] + i) * inverse), typename V::Halves);
                __builtin_memcpy(reinterpret_cast<std::byte*>(scores[r]) + i * 2, &halves, sizeof halves);
            }
            scores[r][size / 2] = heavy / weight_most / Plan::total_of(task, row + r, sums[r], most[r]) + V::sum(defects[r]);
        }
    }

    // out[row, dims d … d + vectors * lanes) = sum over tokens of weight * value, for `rows` rows from `row` on.
    template <int rows, int vectors>
    [[gnu::noinline]] static void weighted_values(const AttentionTask& task, const Span& span, std::int64_t row, std::int64_t d) {
        const std::int64_t weight_stride = task.score_stride * static_cast<std::int64_t>(sizeof(float));
        const auto* weights = reinterpret_cast<const std::byte*>(task.scores + row * task.score_stride);
        Floats totals[extent(rows)][extent(vectors)] = {};
        for (std::int64_t block = span.block_first; block < span.block_end;) {
            const std::int64_t stretch_end = (block / stretch_blocks + 1) * stretch_blocks;
            const std::int64_t end = stretch_end < span.block_end ? stretch_end : span.block_end;
            Ints sums[extent(rows)][extent(vectors)];
#pragma GCC unroll 32
            for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
                for (int i = 0; i < vectors; ++i) sums[r][i] = Ints{};
            }
            for (; block < end; ++block) {
                const std::byte* values = Plan::keys_of(task, block) + task.value_offset + d * pair_bytes;
                for (std::int64_t pair = 0; pair < kv_block_size / 2; ++pair, values += task.value_stride * pair_bytes, weights += 4) {
                    typename Isa::Pairs v[extent(vectors)];
#pragma GCC unroll 4
                    for (int i = 0; i < vectors; ++i) v[i] = Isa::widened_pairs(values + i * lanes * pair_bytes);
#pragma GCC unroll 32
                    for (int r = 0; r < rows; ++r) {
                        const auto x = Isa::all_pairs(load<std::uint32_t>(weights + r * weight_stride));
#pragma GCC unroll 4
                        for (int i = 0; i < vectors; ++i) Isa::dot_pairs(sums[r][i], v[i], x);
                    }
                }
            }
#pragma GCC unroll 32
            for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
                for (int i = 0; i < vectors; ++i) totals[r][i] += __builtin_convertvector(sums[r][i], Floats);
            }
        }
        typename Plan::RowWalk walk(task, row);
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r, walk.advance()) {
            const float scale = task.scores[(row + r) * task.score_stride + span.scores() / 2];
#pragma GCC unroll 4
            for (int i = 0; i < vectors; ++i) totals[r][i] *= scale;
            Plan::template store_row<vectors>(task, walk.out(), d, totals[r]);
        }
    }

    static void run(std::span<const AttentionTask> tasks) { TiledAttention<Int8Attention, Isa>::run_all(tasks); }
    static constexpr Int8AttentionKernel table{.lanes = lanes, .run = run};
};

}  // namespace lorry::kernels::cpu
