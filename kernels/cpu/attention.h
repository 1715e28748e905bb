// Paged causal attention that reads KV blocks in place. Instantiated by kernels_*.cpp.
//
// Query rows (position, head of the group) share every load of keys and values. Scores of the whole visible context are kept, so that a
// row's maximum, its sum of weights and its output are each computed in one order, by token position; rows that see less of the context
// than their neighbours add exact zeros. Decode and prefill are the same code: a row's result does not depend on the rows beside it.
// Slots that were never written may hold anything: their scores are replaced, and their values are not read, or as zeros.
//
// Where the processor multiplies pairs of bfloat16 (Isa::dot), queries and weights are rounded to bfloat16 and the cache is paired; what
// differs stands in paired_attention.h.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/vector_math.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct Attention {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    static constexpr int lanes = Isa::lanes;
    static constexpr int block_vectors = static_cast<int>(kv_block_size) / lanes;
    static constexpr int rows_max = Isa::registers == 32 ? 12 : lanes == 8 ? 6 : 3;

    // What the rows of a task have in common, in numbers of tokens and blocks.
    struct Span {
        std::int64_t block_first;
        std::int64_t block_end;
        std::int64_t token_first;  // the first that any row sees
        std::int64_t token_end;
    };

    static const float* query(const AttentionTask& task, std::int64_t row) {
        return task.q + row / task.group * task.q_stride + row % task.group * task.head_dim;
    }

    // What block_scores reads, and what it asks the memory for meanwhile: the values of these blocks and the keys of the next ones.
    template <class Storage, int blocks>
    struct Keys {
        const Storage* keys[extent(blocks)];
        const Storage* ahead[extent(2 * blocks)];
    };

    // scores[row, 16 tokens of each block] = q . k for `rows` rows from `row` on.
    template <class Storage, int rows, int blocks>
    [[gnu::noinline]] static void block_scores(const AttentionTask& task, const Keys<Storage, blocks>& from, std::int64_t row,
                                               std::int64_t column) {
        constexpr int vectors = blocks * block_vectors;
        const float* q[extent(rows)];
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) q[r] = query(task, row + r);
        Floats sums[extent(rows)][extent(vectors)];
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) sums[r][i] = Floats{};
        }
        for (std::int64_t d = 0; d < task.head_dim; ++d) {
            const std::int64_t offset = d * kv_block_size;
#pragma GCC unroll 4
            for (int i = 0; i < 2 * blocks; ++i) __builtin_prefetch(from.ahead[i] + offset, 0, 2);
            Floats k[extent(vectors)];
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) k[i] = V::load(from.keys[i / block_vectors] + offset + i % block_vectors * lanes);
#pragma GCC unroll 32
            for (int r = 0; r < rows; ++r) {
                const Floats x = V::all(q[r][d]);
#pragma GCC unroll 32
                for (int i = 0; i < vectors; ++i) sums[r][i] = V::fma(x, k[i], sums[r][i]);
            }
        }
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) V::store(task.scores + (row + r) * task.score_stride + column + i * lanes, sums[r][i]);
        }
    }

    template <class Storage, int rows, int blocks>
    static void block_scores_of(std::int64_t count, const AttentionTask& task, const Keys<Storage, blocks>& from, std::int64_t row,
                                std::int64_t column) {
        if (count == rows) {
            block_scores<Storage, rows, blocks>(task, from, row, column);
        } else if constexpr (rows > 1) {
            block_scores_of<Storage, rows - 1, blocks>(count, task, from, row, column);
        }
    }

    template <class Storage>
    static const Storage* keys_of(const AttentionTask& task, std::int64_t block) {
        return reinterpret_cast<const Storage*>(task.keys + task.blocks[block] * task.block_bytes);
    }

    // All rows' scores of `blocks` blocks from `block` on. Row tiles after the first find everything in the cache.
    template <class Storage, int blocks>
    static void scores_of(const AttentionTask& task, const Span& span, std::int64_t block, std::int64_t rows) {
        constexpr int most = blocks == 1 ? rows_max : rows_max / 2;
        const std::int64_t column = (block - span.block_first) * kv_block_size;
        const std::int64_t tiles = (rows + most - 1) / most;
        Keys<Storage, blocks> from;
        for (int i = 0; i < blocks; ++i) {
            const std::int64_t next = block + blocks + i < span.block_end ? block + blocks + i : block + i;
            from.keys[i] = keys_of<Storage>(task, block + i);
            from.ahead[i] = from.keys[i] + task.value_offset / static_cast<std::int64_t>(sizeof(Storage));
            from.ahead[blocks + i] = keys_of<Storage>(task, next);
        }
        for (std::int64_t tile = 0, row = 0; tile < tiles; ++tile) {
            const std::int64_t row_end = rows * (tile + 1) / tiles;
            block_scores_of<Storage, most, blocks>(row_end - row, task, from, row, column);
            row = row_end;
        }
    }

    // The tokens that one row sees: [first, position].
    struct Sight {
        std::int64_t first;
        std::int64_t position;
        bool hides(std::int64_t token) const { return token < first || token + lanes - 1 > position; }
        // The scores of the tokens from `token` on, those that are not seen as -inf.
        [[gnu::always_inline]] Floats seen(Floats x, std::int64_t token) const {
            const Floats hidden = V::all(-__builtin_inff());
            const auto lane = V::ramp();
            const auto from = static_cast<std::int32_t>(first > token ? (first - token < lanes ? first - token : lanes) : 0);
            const auto to = static_cast<std::int32_t>(position < token ? -1 : (position - token < lanes ? position - token : lanes));
            x = lane < V::all(from) ? hidden : x;
            return lane > V::all(to) ? hidden : x;
        }
    };
    static Sight sight_of(const AttentionTask& task, std::int64_t row) {
        const std::int64_t position = task.position + row / task.group;
        return {position + 1 > task.window ? position + 1 - task.window : 0, position};
    }

    // Turns one row's scores into weights that add up to 1.
    static void softmax(const AttentionTask& task, const Span& span, std::int64_t row) {
        const Sight sight = sight_of(task, row);
        float* const scores = task.scores + row * task.score_stride;
        const std::int64_t size = (span.block_end - span.block_first) * kv_block_size;
        const std::int64_t origin = span.block_first * kv_block_size;
        Floats largest = V::all(-__builtin_inff());
        for (std::int64_t i = 0; i < size; i += lanes) {
            Floats x = V::load(scores + i) * task.scale;
            if (sight.hides(origin + i)) x = sight.seen(x, origin + i);
            largest = V::larger(x, largest);
            V::store(scores + i, x);
        }
        const Floats most = V::all(V::largest(largest));
        Floats sum{};
        for (std::int64_t i = 0; i < size; i += lanes) {
            const Floats weight = VectorMath<Isa>::exp(V::load(scores + i) - most);
            sum += weight;
            V::store(scores + i, weight);
        }
        const Floats inverse = V::all(1.0F / V::sum(sum));
        for (std::int64_t i = 0; i < size; i += lanes) V::store(scores + i, V::load(scores + i) * inverse);
    }

    // out[row, dims d … d + vectors * lanes) = sum over tokens of weight * value, for `rows` rows from `row` on.
    template <class Storage, int rows, int vectors>
    [[gnu::noinline]] static void weighted_values(const AttentionTask& task, const Span& span, std::int64_t row, std::int64_t d) {
        Floats sums[extent(rows)][extent(vectors)];
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 32
            for (int i = 0; i < vectors; ++i) sums[r][i] = Floats{};
        }
        const float* weights = task.scores + row * task.score_stride;
        for (std::int64_t block = span.block_first; block < span.block_end; ++block) {
            const std::int64_t origin = block * kv_block_size;
            const std::int64_t begin = span.token_first > origin ? span.token_first - origin : 0;
            const std::int64_t end = span.token_end - origin < kv_block_size ? span.token_end - origin : kv_block_size;
            const Storage* const values =
                reinterpret_cast<const Storage*>(task.keys + task.blocks[block] * task.block_bytes + task.value_offset) + d;
            const float* const here = weights + (block - span.block_first) * kv_block_size;
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
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) store_row<vectors>(task, row + r, d, sums[r]);
    }

    // Stores the dimensions from `d` on that a row has.
    template <int vectors>
    [[gnu::always_inline]] static inline void store_row(const AttentionTask& task, std::int64_t row, std::int64_t d, const Floats* sums) {
        float* const out = task.out + row / task.group * task.out_stride + row % task.group * task.head_dim;
#pragma GCC unroll 32
        for (int i = 0; i < vectors; ++i) {
            const std::int64_t dims = task.head_dim - d - i * lanes;
            if (dims >= lanes) {
                V::store(out + d + i * lanes, sums[i]);
            } else if (dims > 0) {
                V::store_part(out + d + i * lanes, sums[i], dims);
            }
        }
    }

    template <class Storage, int rows>
    static void weighted_values_of(std::int64_t count, const AttentionTask& task, const Span& span, std::int64_t row) {
        if (count == rows) {
            // Few rows take more dimensions at once, for enough sums in flight. value_stride is a multiple of 16, so of the lanes.
            constexpr int vectors = rows * 2 <= rows_max ? 4 : 2;
            std::int64_t d = 0;
            for (; d + vectors * lanes <= task.value_stride; d += vectors * lanes) {
                weighted_values<Storage, rows, vectors>(task, span, row, d);
            }
            for (; d < task.value_stride; d += lanes) weighted_values<Storage, rows, 1>(task, span, row, d);
        } else if constexpr (rows > 1) {
            weighted_values_of<Storage, rows - 1>(count, task, span, row);
        }
    }

    static Span span_of(const AttentionTask& task) {
        const std::int64_t first = task.position + 1 > task.window ? task.position + 1 - task.window : 0;
        const std::int64_t end = task.position + task.positions;
        return {first / kv_block_size, (end + kv_block_size - 1) / kv_block_size, first, end};
    }

    template <class Storage>
    static void run_as(const AttentionTask& task) {
        const Span span = span_of(task);
        const std::int64_t rows = task.positions * task.group;
        std::int64_t block = span.block_first;
        if (rows * 2 <= rows_max) {
            for (; block + 2 <= span.block_end; block += 2) scores_of<Storage, 2>(task, span, block, rows);
        }
        for (; block < span.block_end; ++block) scores_of<Storage, 1>(task, span, block, rows);
        for (std::int64_t row = 0; row < rows; ++row) softmax(task, span, row);
        const std::int64_t tiles = (rows + rows_max - 1) / rows_max;
        for (std::int64_t tile = 0, row = 0; tile < tiles; ++tile) {
            const std::int64_t row_end = rows * (tile + 1) / tiles;
            weighted_values_of<Storage, rows_max>(row_end - row, task, span, row);
            row = row_end;
        }
    }

    static void run(const AttentionTask& task) {
        if (task.layout == KvLayout::bfloat16) {
            run_as<Bf16>(task);
        } else {
            run_as<float>(task);
        }
    }
};

}  // namespace lorry::kernels::cpu
