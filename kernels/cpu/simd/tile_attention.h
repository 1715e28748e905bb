// Attention over a cache of bfloat16 pairs with matrix tiles: scores and weighted values are products of up to 32 query rows with blocks of
// keys and values as they lie in the cache. The plan is that of attention.h, and the same for any number of rows: a score adds up 32
// dimensions at a time, an output the 16 tokens of a KV block. "Block" means a KV block here, except in the type Block and in BlockRows,
// which are about blocks of tiles. Instantiated by table.h over an Isa that has Tiles.
#pragma once

#include "kernels/cpu/simd/paired_attention.h"
#include "kernels/cpu/simd/tile_block.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct TileAttention {
    using Tiles = typename Isa::Tiles;
    using Block = TileBlock<Tiles>;
    using Strip = TileStrip<Tiles>;
    using RowCut = typename Block::RowCut;
    using V = Simd<Isa>;
    using Plan = AttentionPlan<Isa>;
    using Span = typename Plan::Span;
    using Rows = PairedRows<Isa>;
    static constexpr int lanes = Isa::lanes;
    static constexpr std::int64_t line_bytes = Block::line_bytes;  // a pair of dimensions of 16 keys; a pair of tokens in 16 dimensions
    static constexpr std::int64_t pair_bytes = 4;
    static constexpr std::int64_t value_pairs = kv_block_size / 2;
    static_assert(lanes == kv_block_size, "a tile has a column for each token of a block");

    // More than 16 rows: two tiles of rows times two KV blocks, or times two groups of 16 dimensions.
    class ManyRows {
    public:
        static constexpr int down = 2;
        static constexpr int across_max = 2;
        void set_up_keys(std::int64_t tile_rows, std::int64_t pairs) { block_.configure(tile_rows, pairs); }
        void set_up_values(std::int64_t tile_rows) { block_.configure(tile_rows, value_pairs); }
        template <int across>
        [[gnu::always_inline]] static inline void multiply_keys(const TileRowsIn& rows, const TileColumns<across>& keys) {
            Block::template multiply<down, false>(rows, keys, []() __attribute__((always_inline)){});
        }
        template <int across>
        [[gnu::always_inline]] static inline void multiply_values(const TileRowsIn& rows, const TileColumns<across>& values) {
            multiply_keys(rows, values);
        }

    private:
        Block block_;
    };

    // Up to 16 rows, which wait for memory.
    class FewRows {
    public:
        static constexpr int down = 1;
        static constexpr int across_max = Strip::across_max;
        void set_up_keys(std::int64_t tile_rows, std::int64_t pairs) { strip_.configure(tile_rows, pairs, value_pairs); }
        void set_up_values(std::int64_t) {}
        template <int across>
        [[gnu::always_inline]] static inline void multiply_keys(const TileRowsIn& rows, const TileColumns<across>& keys) {
            Strip::template multiply<Strip::first>(rows, keys);
        }
        template <int across>
        [[gnu::always_inline]] static inline void multiply_values(const TileRowsIn& rows, const TileColumns<across>& values) {
            Strip::template multiply<Strip::second>(rows, values);
        }

    private:
        Strip strip_;
    };
    template <class Tiling, int across>
    using Sums = TileSums<Tiles, Tiling::down, across>;

    // The rows of a block of tiles, numbered within the task.
    struct BlockRows {
        std::int64_t first;  // of each tile
        std::int64_t second;
        std::int64_t tile_rows;
    };

    // Pairs of dimensions that a tile takes at a time.
    struct Dims {
        std::int64_t pair;    // the first
        std::int64_t pairs;   // of a product
        std::int64_t chunks;  // products
        bool adds;            // to the scores of earlier dimensions
    };

    // The scores of `across` blocks from `block` on.
    template <class Tiling, int across>
    static void block_scores(const AttentionTask& task, const Span& span, const BlockRows& rows, const Dims& dims, std::int64_t block) {
        const TilePlace scores{.first = reinterpret_cast<std::byte*>(Plan::scores_of(task, span, block, rows.first)),
                               .second = reinterpret_cast<std::byte*>(Plan::scores_of(task, span, block, rows.second)),
                               .stride = task.score_stride * static_cast<std::int64_t>(sizeof(float))};
        if (dims.adds) {
            Sums<Tiling, across>::load(scores);
        } else {
            Sums<Tiling, across>::clear();
        }
        const std::int64_t query_bytes = task.head_dim * 2;
        TileRowsIn queries{.first = task.queries + rows.first * query_bytes + dims.pair * pair_bytes,
                           .second = task.queries + rows.second * query_bytes + dims.pair * pair_bytes,
                           .stride = query_bytes};
        TileColumns<across> keys{.at = {}, .stride = line_bytes};
        for (int i = 0; i < across; ++i) keys.at[i] = Plan::keys_of(task, block + i) + dims.pair * line_bytes;
        for (std::int64_t chunk = 0; chunk < dims.chunks; ++chunk) {
            Tiling::multiply_keys(queries, keys);
            queries.advance(dims.pairs * pair_bytes);
            keys.advance(dims.pairs * line_bytes);
        }
        Sums<Tiling, across>::store(scores);
    }

    template <class Tiling>
    static void scores(Tiling& tiles, const AttentionTask& task, const Span& span, const BlockRows& rows) {
        const std::int64_t pairs = task.head_dim / 2;
        const std::int64_t chunks = pairs / Block::groups_whole;
        const std::int64_t rest = pairs - chunks * Block::groups_whole;
        const auto run = [&](const Dims& dims) {
            tiles.set_up_keys(rows.tile_rows, dims.pairs);
            std::int64_t block = span.block_first;
            if constexpr (Tiling::across_max == 4) {
                for (; block + 4 <= span.block_end; block += 4) block_scores<Tiling, 4>(task, span, rows, dims, block);
            }
            for (; block + 2 <= span.block_end; block += 2) block_scores<Tiling, 2>(task, span, rows, dims, block);
            if (block < span.block_end) block_scores<Tiling, 1>(task, span, rows, dims, block);
        };
        if (chunks > 0) run({.pair = 0, .pairs = Block::groups_whole, .chunks = chunks, .adds = false});
        if (rest > 0) run({.pair = chunks * Block::groups_whole, .pairs = rest, .chunks = 1, .adds = chunks > 0});
    }

    // Few rows prefetch values, because their tiles do not read lines in the order in which they lie, and because nothing else comes from
    // memory while scores become weights. Keys lie in the order in which they are read.
    static constexpr std::int64_t values_ahead = 8;  // blocks
    static std::int64_t value_bytes(const AttentionTask& task) { return kv_block_size * task.value_stride * 2; }
    // Prefetches bytes [begin, end) of a block's values, if there is such a block. always_inline: g++ removes calls of a function that only
    // prefetches.
    [[gnu::always_inline]] static inline void prefetch_values(const AttentionTask& task, const Span& span, std::int64_t block,
                                                              std::int64_t begin, std::int64_t end) {
        if (block >= span.block_end) return;
        const std::byte* const values = Plan::keys_of(task, block) + task.value_offset;
        for (std::int64_t at = begin; at < end; at += line_bytes) __builtin_prefetch(values + at, 0, 2);
    }

    // Copies 16 * across dimensions of a block's values, with zeros for tokens that no row sees, whose memory may hold anything.
    template <int across>
    static void copy_seen(const std::byte* from, std::int64_t stride, std::int64_t begin, std::int64_t end, std::byte* to) {
        for (std::int64_t token = 0; token < kv_block_size; token += 2) {
            const std::uint32_t first = token >= begin && token < end ? 0xFFFFU : 0U;
            const std::uint32_t second = token + 1 >= begin && token + 1 < end ? 0xFFFF0000U : 0U;
            for (int i = 0; i < across; ++i) {
                typename V::Bits pairs;
                __builtin_memcpy(&pairs, from + token / 2 * stride + i * line_bytes, sizeof pairs);
                pairs &= first | second;
                __builtin_memcpy(to + (token / 2 * across + i) * line_bytes, &pairs, sizeof pairs);
            }
        }
    }

    // out[rows, dims d … d + across * 16) = sum over tokens of weight * value
    template <class Tiling, int across>
    static void weighted_values(const AttentionTask& task, const Span& span, const BlockRows& rows, std::int64_t d) {
        Sums<Tiling, across>::clear();
        TileRowsIn weights{.first = Rows::weights_of(task, rows.first),
                           .second = Rows::weights_of(task, rows.second),
                           .stride = task.score_stride * static_cast<std::int64_t>(sizeof(float))};
        for (std::int64_t block = span.block_first; block < span.block_end; ++block) {
            if (Tiling::down == 1 && d == 0) prefetch_values(task, span, block + values_ahead, 0, value_bytes(task));
            const std::int64_t origin = block * kv_block_size;
            const std::byte* from = Plan::keys_of(task, block) + task.value_offset + d * pair_bytes;
            std::int64_t stride = task.value_stride * pair_bytes;
            alignas(64) std::byte seen[value_pairs][extent(across * line_bytes)];
            if (origin < span.token_first || origin + kv_block_size > span.token_end) {
                copy_seen<across>(from, stride, span.token_first - origin, span.token_end - origin, seen[0]);
                from = seen[0];
                stride = sizeof seen[0];
            }
            Tiling::multiply_values(weights, TileColumns<across>::side_by_side(from, stride));
            weights.advance(kv_block_size * 2);
        }
        alignas(64) float sums[extent(Tiling::down)][Block::tile_rows_max][extent(across * lanes)];
        Sums<Tiling, across>::store({.first = reinterpret_cast<std::byte*>(sums[0][0]),
                                     .second = reinterpret_cast<std::byte*>(sums[Tiling::down - 1][0]),
                                     .stride = sizeof sums[0][0]});
        for (int tile = 0; tile < Tiling::down; ++tile) {
            const std::int64_t row = tile == 0 ? rows.first : rows.second;
            typename Plan::RowWalk walk(task, row);
            for (std::int64_t r = 0; r < rows.tile_rows; ++r, walk.advance()) {
                const float inverse = task.scores[(row + r) * task.score_stride + span.scores() / 2];
                typename V::Floats x[extent(across)];
                for (int i = 0; i < across; ++i) x[i] = V::load(&sums[tile][r][i * lanes]) * inverse;
                if (task.out_bfloat16 != nullptr) {
                    Plan::template store_row<across>(task, walk.out_bfloat16(), d, x);
                } else {
                    Plan::template store_row<across>(task, walk.out(), d, x);
                }
            }
        }
    }

    template <class Tiling>
    static void values(Tiling& tiles, const AttentionTask& task, const Span& span, const BlockRows& rows) {
        tiles.set_up_values(rows.tile_rows);
        std::int64_t d = 0;
        if constexpr (Tiling::across_max == 4) {
            for (; d + 4 * lanes <= task.value_stride; d += 4 * lanes) weighted_values<Tiling, 4>(task, span, rows, d);
        }
        for (; d + 2 * lanes <= task.value_stride; d += 2 * lanes) weighted_values<Tiling, 2>(task, span, rows, d);
        if (d < task.value_stride) weighted_values<Tiling, 1>(task, span, rows, d);
    }

    static void run_few(FewRows& tiles, const AttentionTask& task) {
        const Span span = Plan::span_of(task);
        const std::int64_t count = rows_of(task);
        const BlockRows rows{.first = 0, .second = 0, .tile_rows = count};
        Plan::template narrow_all_queries<Rows>(task, count);
        scores(tiles, task, span, rows);
        // A share of the first blocks' values before each row.
        Plan::template weigh_all<Rows>(task, span, count, [&](std::int64_t row, std::int64_t row_end) {
            const std::int64_t lines = value_bytes(task) / line_bytes;
            for (std::int64_t block = span.block_first; block < span.block_first + values_ahead; ++block)
                prefetch_values(task, span, block, lines * row / count * line_bytes, lines * row_end / count * line_bytes);
        });
        values(tiles, task, span, rows);
    }

    static void run_many(const AttentionTask& task) {
        const Span span = Plan::span_of(task);
        const RowCut cut(rows_of(task));
        const auto block_rows = [&](std::int64_t block) {
            return BlockRows{.first = cut.first_tile(block), .second = cut.second_tile(block), .tile_rows = cut.tile_rows};
        };
        Plan::template narrow_all_queries<Rows>(task, cut.rows);
        ManyRows tiles;
        for (std::int64_t block = 0; block < cut.blocks; ++block) scores(tiles, task, span, block_rows(block));
        Plan::template weigh_all<Rows>(task, span, cut.rows);
        for (std::int64_t block = 0; block < cut.blocks; ++block) values(tiles, task, span, block_rows(block));
    }

    static std::int64_t rows_of(const AttentionTask& task) { return task.positions * task.group; }
    static bool has_few_rows(const AttentionTask& task) { return rows_of(task) <= Block::tile_rows_max; }

    static void run(std::span<const AttentionTask> tasks) {
        if (tasks.front().layout != KvLayout::bfloat16_pairs) return run_plain_attention<Isa>(tasks);
        for (std::size_t i = 0; i < tasks.size();) {
            if (has_few_rows(tasks[i])) {
                FewRows tiles;
                for (; i < tasks.size() && has_few_rows(tasks[i]); ++i) run_few(tiles, tasks[i]);
            } else {
                run_many(tasks[i++]);
            }
        }
    }
};

}  // namespace lorry::kernels::cpu
