// Paged attention that reads KV blocks in place: the parts that all cache layouts share. Used by plain_attention.h,
// paired_attention.h, tile_attention.h and int8_attention.h.
//
// Query rows (position, head of the group) share every load of keys and values. The scores of the whole visible context are kept, so that a
// row's maximum, its sum of weights and its output are each computed in one order, by token position; rows that see less of the context
// than others add exact zeros. Decode and prefill run the same code, so a row's result does not depend on the other rows. Slots that were
// never written may contain anything: their scores are replaced, and their values are not read or count as zeros.
//
// A `Way` implements the products for one cache layout. It has rows_max and
//   two_blocks_rows                                           up to this many rows read the keys of two blocks at a time
//   narrow_queries(task, row, from)                           converts a row's queries, unless they are read as they are
//   block_scores<rows, blocks>(task, span, block, row)        computes the scores of `rows` rows and `blocks` blocks
//   weigh_rows, weigh<rows>(task, span, row)                  turns the scores of `weigh_rows` rows into weights, in place
//   weighted_values<rows, vectors>(task, span, row, d)        computes the outputs from dimension `d` on
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/vector_math.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct AttentionPlan {
    using V = Simd<Isa>;
    using Floats = typename V::Floats;
    static constexpr int lanes = Isa::lanes;
    static constexpr int block_vectors = static_cast<int>(kv_block_size) / lanes;

    // What the rows of a task share, in tokens and blocks.
    struct Span {
        std::int64_t block_first;
        std::int64_t block_end;
        std::int64_t token_first;  // the first token that any row sees
        std::int64_t token_end;
        std::int64_t scores() const { return (block_end - block_first) * kv_block_size; }
    };
    static std::int64_t last_seen(const AttentionTask& task, std::int64_t position) {
        return position + task.ahead < task.tokens ? position + task.ahead : task.tokens - 1;
    }
    static Span span_of(const AttentionTask& task) {
        const std::int64_t first = task.position + 1 > task.window ? task.position + 1 - task.window : 0;
        const std::int64_t end = last_seen(task, task.position + task.positions - 1) + 1;
        return {first / kv_block_size, (end + kv_block_size - 1) / kv_block_size, first, end};
    }

    // A row of the task that can be advanced to the next: dividing for each row would take longer than most of the work.
    class RowWalk {
    public:
        RowWalk(const AttentionTask& task, std::int64_t row) : task_(task), position_(row / task.group), head_(row % task.group) {}
        void advance() {
            if (++head_ < task_.group) return;
            head_ = 0;
            ++position_;
        }
        const float* query() const { return task_.q + position_ * task_.q_stride + head_ * task_.head_dim; }
        float* out() const { return task_.out + position_ * task_.out_stride + head_ * task_.head_dim; }
        Bf16* out_bfloat16() const {
            return reinterpret_cast<Bf16*>(task_.out_bfloat16) + position_ * task_.out_stride + head_ * task_.head_dim;
        }

    private:
        const AttentionTask& task_;
        std::int64_t position_;
        std::int64_t head_;
    };
    static const std::byte* keys_of(const AttentionTask& task, std::int64_t block) {
        return task.keys + task.blocks[block] * task.block_bytes;
    }
    // The keys of the block `count` blocks after this one, for prefetching; for the last blocks, their own keys.
    static const std::byte* next_keys_of(const AttentionTask& task, const Span& span, std::int64_t block, int count) {
        return keys_of(task, block + count < span.block_end ? block + count : block);
    }
    static float* scores_of(const AttentionTask& task, const Span& span, std::int64_t block, std::int64_t row) {
        return task.scores + row * task.score_stride + (block - span.block_first) * kv_block_size;
    }

    // The tokens that one row sees: [first, last].
    struct Sight {
        std::int64_t first;
        std::int64_t last;
        bool hides(std::int64_t token) const { return token < first || token + lanes - 1 > last; }
        // The scores of the tokens from `token` on, with -inf for unseen ones.
        [[gnu::always_inline]] Floats seen(Floats x, std::int64_t token) const {
            const Floats hidden = V::all(-__builtin_inff());
            const auto lane = V::ramp();
            const auto from = static_cast<std::int32_t>(first > token ? (first - token < lanes ? first - token : lanes) : 0);
            const auto to = static_cast<std::int32_t>(last < token ? -1 : (last - token < lanes ? last - token : lanes));
            x = lane < V::all(from) ? hidden : x;
            return lane > V::all(to) ? hidden : x;
        }
    };
    static Sight sight_of(const AttentionTask& task, std::int64_t row) {
        const std::int64_t position = task.position + row / task.group;
        return {position + 1 > task.window ? position + 1 - task.window : 0, last_seen(task, position)};
    }

    static void add_bias(const AttentionTask& task, const Span& span, std::int64_t row) {
        float* const scores = task.scores + row * task.score_stride;
        const float* const bias =
            task.bias + row % task.group * task.bias_stride + row / task.group * task.bias_of_position + span.block_first * kv_block_size;
        for (std::int64_t i = 0; i < span.scores(); i += lanes) V::store(scores + i, V::load(scores + i) + V::load(bias + i));
    }

    static void cap_scores(const AttentionTask& task, const Span& span, std::int64_t row) {
        float* const scores = task.scores + row * task.score_stride;
        const float inverse = 1.0F / task.cap;
        for (std::int64_t i = 0; i < span.scores(); i += lanes)
            V::store(scores + i, VectorMath<Isa>::tanh(V::load(scores + i) * inverse) * task.cap);
    }

    // The sum of a row's weights: of the tokens it sees, relative to the score `most`, and of its sink.
    static float total_of(const AttentionTask& task, std::int64_t row, Floats sum, Floats most) {
        const float seen = V::sum(sum);
        if (task.sinks == nullptr) return seen;
        return seen + V::largest(VectorMath<Isa>::exp(V::all(task.sinks[row % task.group]) - most));
    }

    // Replaces the scores of tokens that the row does not see by -inf, caps the others and adds the bias to them; returns the largest of
    // these and the row's sink.
    static float hide_unseen(const AttentionTask& task, const Span& span, std::int64_t row) {
        if (task.has_cap) cap_scores(task, span, row);
        if (task.bias != nullptr) add_bias(task, span, row);
        const Sight sight = sight_of(task, row);
        float* const scores = task.scores + row * task.score_stride;
        const std::int64_t origin = span.block_first * kv_block_size;
        Floats largest = V::all(task.sinks != nullptr ? task.sinks[row % task.group] : -__builtin_inff());
        for (std::int64_t i = 0; i < span.scores(); i += lanes) {
            Floats x = V::load(scores + i);
            if (sight.hides(origin + i)) {
                x = sight.seen(x, origin + i);
                V::store(scores + i, x);
            }
            largest = V::larger(x, largest);
        }
        return V::largest(largest);
    }

    template <class Way>
    static void narrow_all_queries(const AttentionTask& task, std::int64_t rows) {
        RowWalk walk(task, 0);
        for (std::int64_t row = 0; row < rows; ++row, walk.advance()) Way::narrow_queries(task, row, walk.query());
    }
    // before(row, row_end): called before the work on these rows.
    template <class Way, class Before>
    static void weigh_all(const AttentionTask& task, const Span& span, std::int64_t rows, const Before& before) {
        std::int64_t row = 0;
        for (; row + Way::weigh_rows <= rows; row += Way::weigh_rows) {
            before(row, row + Way::weigh_rows);
            Way::template weigh<Way::weigh_rows>(task, span, row);
        }
        for (; row < rows; ++row) {
            before(row, row + 1);
            Way::template weigh<1>(task, span, row);
        }
    }
    template <class Way>
    static void weigh_all(const AttentionTask& task, const Span& span, std::int64_t rows) {
        weigh_all<Way>(task, span, rows, [](std::int64_t, std::int64_t) {});
    }

    // Stores the dimensions from `d` on, as far as the row has them.
    template <int vectors, class Storage>
    [[gnu::always_inline]] static inline void store_row(const AttentionTask& task, Storage* out, std::int64_t d, const Floats* sums) {
#pragma GCC unroll 32
        for (int i = 0; i < vectors; ++i) {
            const std::int64_t dims = task.head_dim - d - i * lanes;
            if (dims > 0) V::store_up_to(out + d + i * lanes, sums[i], dims);
        }
    }
};

template <class Way, class Isa>
struct TiledAttention {
    using Plan = AttentionPlan<Isa>;
    using Span = typename Plan::Span;
    static constexpr int lanes = Isa::lanes;

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
            // Few rows process more dimensions at once, to have enough sums in flight. value_stride is a multiple of 16 and so of the
            // lanes.
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

    template <int blocks>
    static void all_scores(const AttentionTask& task, const Span& span, std::int64_t block, std::int64_t rows) {
        constexpr std::int64_t most = blocks == 2 && Way::two_blocks_rows < Way::rows_max ? Way::two_blocks_rows : Way::rows_max;
        each_tile(rows, [&](std::int64_t row, std::int64_t count) {
            block_scores_of<static_cast<int>(most), blocks>(count, task, span, block, row);
        });
    }

    static void run(const AttentionTask& task) {
        const Span span = Plan::span_of(task);
        const std::int64_t rows = task.positions * task.group;
        Plan::template narrow_all_queries<Way>(task, rows);
        std::int64_t block = span.block_first;
        if (rows <= Way::two_blocks_rows) {
            for (; block + 2 <= span.block_end; block += 2) all_scores<2>(task, span, block, rows);
        }
        for (; block < span.block_end; ++block) all_scores<1>(task, span, block, rows);
        Plan::template weigh_all<Way>(task, span, rows);
        each_tile(rows, [&](std::int64_t row, std::int64_t count) { weighted_values_of<Way::rows_max>(count, task, span, row); });
    }
    static void run_all(std::span<const AttentionTask> tasks) {
        for (const AttentionTask& task : tasks) run(task);
    }
};

}  // namespace lorry::kernels::cpu
