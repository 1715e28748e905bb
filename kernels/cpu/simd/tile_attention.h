// Attention over a cache of bfloat16 pairs with matrix tiles: scores and weighted values are products of up to 32 query rows with blocks of
// keys and values as they lie in the cache. The plan is that of attention.h, and the same for any number of rows: a score adds up 32
// dimensions at a time, an output the 16 tokens of a block. Instantiated by table.h over an Isa that has Tiles.
#pragma once

#include "kernels/cpu/simd/paired_attention.h"
#include "kernels/cpu/simd/tile_matmul.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct TileAttention {
    using Tiles = typename Isa::Tiles;
    using V = Simd<Isa>;
    using Plan = AttentionPlan<Isa>;
    using Span = typename Plan::Span;
    using Rows = PairedRows<Isa>;
    static constexpr int lanes = Isa::lanes;
    static constexpr std::int64_t tile_rows_max = 16;
    static constexpr std::int64_t pass_rows_max = 2 * tile_rows_max;
    static constexpr std::int64_t line_bytes = 64;  // a pair of dimensions of a block's keys; the pairs of tokens of 16 dimensions
    static constexpr std::int64_t chunk_pairs = 16;
    static constexpr std::int64_t pair_bytes = 4;
    static constexpr int dims_together = 2 * lanes;
    // Numbers of the tiles: sums are 0 … 3, by row and then by column.
    static constexpr int rows_tile = 4;
    static constexpr int columns_tile = 6;
    static_assert(lanes == kv_block_size, "a tile has a column for each token of a block");

    // Up to 32 rows, as one or two tiles of equal height; the second may begin within the first.
    struct Pass {
        std::int64_t first;   // row of the task
        std::int64_t second;  // row of the second tile
        std::int64_t tile_rows;
        Pass(std::int64_t row, std::int64_t rows) : first(row), second(row), tile_rows(rows <= tile_rows_max ? rows : (rows + 1) / 2) {
            second += rows - tile_rows;
        }
        bool has_two_tiles() const { return second > first; }
    };

    // pairs: what a product adds up, in pairs of bfloat16.
    static void configure(const Pass& pass, std::int64_t pairs) {
        TileShapes shapes;
        const auto set = [&](int tile, std::int64_t rows, std::int64_t bytes) __attribute__((always_inline)) {
            shapes.rows[tile] = static_cast<std::uint8_t>(rows);
            shapes.row_bytes[tile] = static_cast<std::uint16_t>(bytes);
        };
        for (int tile = 0; tile < 4; ++tile) set(tile, pass.tile_rows, line_bytes);
        for (int i = 0; i < 2; ++i) {
            set(rows_tile + i, pass.tile_rows, pairs * pair_bytes);
            set(columns_tile + i, pairs, line_bytes);
        }
        Tiles::configure(shapes);
    }

    template <int down, int across>
    [[gnu::always_inline]] static inline void clear() {
        Tiles::template clear<0>();
        if constexpr (across == 2) Tiles::template clear<1>();
        if constexpr (down == 2) Tiles::template clear<2>();
        if constexpr (down == 2 && across == 2) Tiles::template clear<3>();
    }
    template <int down, int across>
    [[gnu::always_inline]] static inline void reload(const float* first, const float* second, std::int64_t stride) {
        Tiles::template load<0>(first, stride);
        if constexpr (across == 2) Tiles::template load<1>(first + lanes, stride);
        if constexpr (down == 2) Tiles::template load<2>(second, stride);
        if constexpr (down == 2 && across == 2) Tiles::template load<3>(second + lanes, stride);
    }
    template <int down, int across>
    [[gnu::always_inline]] static inline void save(float* first, float* second, std::int64_t stride) {
        Tiles::template store<0>(first, stride);
        if constexpr (across == 2) Tiles::template store<1>(first + lanes, stride);
        if constexpr (down == 2) Tiles::template store<2>(second, stride);
        if constexpr (down == 2 && across == 2) Tiles::template store<3>(second + lanes, stride);
    }
    // Rows of two tiles times columns of two.
    struct Factors {
        const std::byte* first;
        const std::byte* second;
        std::int64_t row_stride;
        const std::byte* left;
        const std::byte* right;
        std::int64_t column_stride;
    };
    template <int down, int across>
    [[gnu::always_inline]] static inline void multiply(const Factors& from) {
        Tiles::template load<columns_tile>(from.left, from.column_stride);
        Tiles::template load<rows_tile>(from.first, from.row_stride);
        Tiles::template dot<0, rows_tile, columns_tile>();
        if constexpr (across == 2) {
            Tiles::template load<columns_tile + 1>(from.right, from.column_stride);
            Tiles::template dot<1, rows_tile, columns_tile + 1>();
        }
        if constexpr (down == 2) {
            Tiles::template load<rows_tile + 1>(from.second, from.row_stride);
            Tiles::template dot<2, rows_tile + 1, columns_tile>();
            if constexpr (across == 2) Tiles::template dot<3, rows_tile + 1, columns_tile + 1>();
        }
    }

    // A few rows wait for memory. They read all keys, then all values, then the next task's keys: in step `step` of these, a block each,
    // this asks for what is read some steps later. Many rows find most of it in the cache.
    static void prefetch_ahead(const AttentionTask& task, const Span& span, std::int64_t step) {
        constexpr std::int64_t steps_ahead = 8;
        const std::int64_t blocks = span.block_end - span.block_first;
        step += steps_ahead;
        if (step < blocks) {
            prefetch(Plan::keys_of(task, span.block_first + step), task.value_offset);
        } else if (step < 2 * blocks) {
            prefetch(Plan::keys_of(task, span.block_first + step - blocks) + task.value_offset, kv_block_size * task.value_stride * 2);
        } else if (step - 2 * blocks < task.next_block_count) {
            prefetch(task.next_keys + task.next_blocks[step - 2 * blocks] * task.block_bytes, task.value_offset);
        }
    }
    static void prefetch(const std::byte* from, std::int64_t bytes) {
        for (std::int64_t at = 0; at < bytes; at += line_bytes) __builtin_prefetch(from + at, 0, 2);
    }

    // Pairs of dimensions that a tile takes at a time.
    struct Dims {
        std::int64_t pair;    // the first
        std::int64_t pairs;   // of a product
        std::int64_t chunks;  // products
        bool adds;            // to the scores of earlier dimensions
    };

    template <int down, int blocks>
    static void block_scores(const AttentionTask& task, const Span& span, const Pass& pass, const Dims& dims, std::int64_t block) {
        const std::byte* keys[2];
        for (int i = 0; i < blocks; ++i) {
            keys[i] = Plan::keys_of(task, block + i);
            if (down == 1 && !dims.adds) prefetch_ahead(task, span, block + i - span.block_first);
        }
        float* const first = Plan::scores_of(task, span, block, pass.first);
        float* const second = Plan::scores_of(task, span, block, pass.second);
        const std::int64_t score_bytes = task.score_stride * static_cast<std::int64_t>(sizeof(float));
        if (dims.adds) {
            reload<down, blocks>(first, second, score_bytes);
        } else {
            clear<down, blocks>();
        }
        const std::int64_t query_bytes = task.head_dim * 2;
        const std::byte* const queries = task.queries + dims.pair * pair_bytes;
        for (std::int64_t chunk = 0; chunk < dims.chunks; ++chunk) {
            const std::int64_t key = (dims.pair + chunk * dims.pairs) * line_bytes;
            const std::byte* const query = queries + chunk * dims.pairs * pair_bytes;
            multiply<down, blocks>({.first = query + pass.first * query_bytes,
                                    .second = query + pass.second * query_bytes,
                                    .row_stride = query_bytes,
                                    .left = keys[0] + key,
                                    .right = keys[blocks - 1] + key,
                                    .column_stride = line_bytes});
        }
        save<down, blocks>(first, second, score_bytes);
    }

    template <int down>
    static void scores(const AttentionTask& task, const Span& span, const Pass& pass) {
        const std::int64_t pairs = task.head_dim / 2;
        const std::int64_t chunks = pairs / chunk_pairs;
        const std::int64_t rest = pairs - chunks * chunk_pairs;
        const auto run = [&](const Dims& dims) {
            configure(pass, dims.pairs);
            std::int64_t block = span.block_first;
            for (; block + 2 <= span.block_end; block += 2) block_scores<down, 2>(task, span, pass, dims, block);
            if (block < span.block_end) block_scores<down, 1>(task, span, pass, dims, block);
        };
        if (chunks > 0) run({.pair = 0, .pairs = chunk_pairs, .chunks = chunks, .adds = false});
        if (rest > 0) run({.pair = chunks * chunk_pairs, .pairs = rest, .chunks = 1, .adds = chunks > 0});
    }

    // Some dimensions of a block's values, with zeros for tokens that no row sees: their memory may hold anything.
    template <int across>
    static void copy_seen(const std::byte* from, std::int64_t stride, std::int64_t begin, std::int64_t end, std::byte* to) {
        for (std::int64_t token = 0; token < kv_block_size; token += 2) {
            const std::uint32_t first = token >= begin && token < end ? 0xFFFFU : 0U;
            const std::uint32_t second = token + 1 >= begin && token + 1 < end ? 0xFFFF0000U : 0U;
            for (int i = 0; i < across; ++i) {
                typename V::Bits pairs;
                __builtin_memcpy(&pairs, from + token / 2 * stride + i * line_bytes, sizeof pairs);
                pairs &= first | second;
                __builtin_memcpy(to + token / 2 * dims_together * pair_bytes + i * line_bytes, &pairs, sizeof pairs);
            }
        }
    }

    // out[rows of the pass, dims d … d + across * 16) = sum over tokens of weight * value
    template <int down, int across>
    static void weighted_values(const AttentionTask& task, const Span& span, const Pass& pass, std::int64_t d) {
        clear<down, across>();
        const std::int64_t weight_stride = task.score_stride * static_cast<std::int64_t>(sizeof(float));
        const std::int64_t value_stride = task.value_stride * pair_bytes;
        const std::int64_t blocks = span.block_end - span.block_first;
        for (std::int64_t block = span.block_first; block < span.block_end; ++block) {
            const std::int64_t origin = block * kv_block_size;
            const std::int64_t weight = (block - span.block_first) * kv_block_size * 2;
            const std::byte* values = Plan::keys_of(task, block) + task.value_offset + d * pair_bytes;
            if (down == 1 && d == 0) prefetch_ahead(task, span, blocks + block - span.block_first);
            std::int64_t stride = value_stride;
            alignas(64) std::byte seen[kv_block_size / 2][extent(dims_together * 4)];
            if (origin < span.token_first || origin + kv_block_size > span.token_end) {
                copy_seen<across>(values, stride, span.token_first - origin, span.token_end - origin, seen[0]);
                values = seen[0];
                stride = sizeof seen[0];
            }
            multiply<down, across>({.first = Rows::weights_of(task, pass.first) + weight,
                                    .second = Rows::weights_of(task, pass.second) + weight,
                                    .row_stride = weight_stride,
                                    .left = values,
                                    .right = values + line_bytes,
                                    .column_stride = stride});
        }
        alignas(64) float sums[pass_rows_max][extent(dims_together)];
        save<down, across>(sums[0], sums[tile_rows_max], sizeof sums[0]);
        const auto finish = [&](std::int64_t row, std::int64_t begin) {
            typename Plan::RowWalk walk(task, row);
            for (std::int64_t r = 0; r < pass.tile_rows; ++r, walk.advance()) {
                const float inverse = task.scores[(row + r) * task.score_stride + span.scores() / 2];
                typename V::Floats x[extent(across)];
                for (int i = 0; i < across; ++i) x[i] = V::load(&sums[begin + r][i * lanes]) * inverse;
                if (task.out_bfloat16 != nullptr) {
                    Plan::template store_row<across>(task, reinterpret_cast<Bf16*>(walk.out_bfloat16()), d, x);
                } else {
                    Plan::template store_row<across>(task, walk.out(), d, x);
                }
            }
        };
        finish(pass.first, 0);
        if constexpr (down == 2) finish(pass.second, tile_rows_max);
    }

    template <int down>
    static void values(const AttentionTask& task, const Span& span, const Pass& pass) {
        configure(pass, kv_block_size / 2);
        std::int64_t d = 0;
        for (; d + dims_together <= task.value_stride; d += dims_together) weighted_values<down, 2>(task, span, pass, d);
        if (d < task.value_stride) weighted_values<down, 1>(task, span, pass, d);
    }

    // Calls work for all rows, up to 32 at a time.
    template <class Work>
    static void each_pass(std::int64_t rows, const Work& work) {
        for (std::int64_t row = 0; row < rows; row += pass_rows_max)
            work(Pass(row, rows - row < pass_rows_max ? rows - row : pass_rows_max));
    }

    static void run(const AttentionTask& task) {
        if (task.layout != KvLayout::bfloat16_pairs) return run_plain_attention<Isa>(task);
        const Span span = Plan::span_of(task);
        const std::int64_t rows = task.positions * task.group;
        Rows::narrow_all_queries(task, rows);
        each_pass(rows, [&](const Pass& pass) {
            if (pass.has_two_tiles()) {
                scores<2>(task, span, pass);
            } else {
                scores<1>(task, span, pass);
            }
        });
        Rows::weigh_all(task, span, rows);
        each_pass(rows, [&](const Pass& pass) {
            if (pass.has_two_tiles()) {
                values<2>(task, span, pass);
            } else {
                values<1>(task, span, pass);
            }
        });
        Tiles::release();
    }
};

}  // namespace lorry::kernels::cpu
