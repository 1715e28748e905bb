// Attention over a cache of bfloat16 pairs with matrix tiles: scores and weighted values are products of up to 32 query rows with blocks of
// keys and values as they lie in the cache. The plan is that of attention.h, and the same for any number of rows: a score adds up 32
// dimensions at a time, an output the 16 tokens of a block. Instantiated by table.h over an Isa that has Tiles.
#pragma once

#include "kernels/cpu/simd/paired_attention.h"
#include "kernels/cpu/simd/tile_block.h"

namespace lorry::kernels::cpu {

template <class Isa>
struct TileAttention {
    using Block = TileBlock<typename Isa::Tiles>;
    using RowCut = typename Block::RowCut;
    using V = Simd<Isa>;
    using Plan = AttentionPlan<Isa>;
    using Span = typename Plan::Span;
    using Rows = PairedRows<Isa>;
    static constexpr int lanes = Isa::lanes;
    static constexpr std::int64_t line_bytes = Block::line_bytes;  // a pair of dimensions of 16 keys; a pair of tokens in 16 dimensions
    static constexpr std::int64_t pair_bytes = 4;
    static constexpr int dims_together = 2 * lanes;
    static_assert(lanes == kv_block_size, "a tile has a column for each token of a block");

    // The rows of a block of tiles, numbered within the task.
    struct BlockRows {
        std::int64_t first;  // of each tile
        std::int64_t second;
        std::int64_t tile_rows;
    };

    // For few rows, which wait for memory: they read the keys of all blocks, then the values of all, a step for each. In step `step` this
    // prefetches what is read some steps later. Many rows find most of it in the cache.
    static void prefetch_ahead(const AttentionTask& task, const Span& span, std::int64_t step) {
        constexpr std::int64_t steps_ahead = 8;
        const std::int64_t blocks = span.block_end - span.block_first;
        const std::int64_t later = step + steps_ahead;
        if (later < blocks) {
            prefetch(Plan::keys_of(task, span.block_first + later), task.value_offset);
        } else if (later < 2 * blocks) {
            prefetch(Plan::keys_of(task, span.block_first + later - blocks) + task.value_offset, kv_block_size * task.value_stride * 2);
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
    static void block_scores(const AttentionTask& task, const Span& span, const BlockRows& rows, const Dims& dims, std::int64_t block) {
        if (down == 1 && !dims.adds) {
            for (int i = 0; i < blocks; ++i) prefetch_ahead(task, span, block + i - span.block_first);
        }
        const TilePlace scores{.first = reinterpret_cast<std::byte*>(Plan::scores_of(task, span, block, rows.first)),
                               .second = reinterpret_cast<std::byte*>(Plan::scores_of(task, span, block, rows.second)),
                               .stride = task.score_stride * static_cast<std::int64_t>(sizeof(float))};
        if (dims.adds) {
            Block::template load<down, blocks>(scores);
        } else {
            Block::template clear<down, blocks>();
        }
        const std::int64_t query_bytes = task.head_dim * 2;
        TileFactors from{.first = task.queries + rows.first * query_bytes + dims.pair * pair_bytes,
                         .second = task.queries + rows.second * query_bytes + dims.pair * pair_bytes,
                         .row_stride = query_bytes,
                         .left = Plan::keys_of(task, block) + dims.pair * line_bytes,
                         .right = Plan::keys_of(task, block + blocks - 1) + dims.pair * line_bytes,
                         .column_stride = line_bytes};
        for (std::int64_t chunk = 0; chunk < dims.chunks; ++chunk) {
            Block::template multiply<down, blocks, false>(from, []() __attribute__((always_inline)){});
            from.first += dims.pairs * pair_bytes;
            from.second += dims.pairs * pair_bytes;
            from.left += dims.pairs * line_bytes;
            from.right += dims.pairs * line_bytes;
        }
        Block::template store<down, blocks>(scores);
    }

    template <int down>
    static void scores(Block& tiles, const AttentionTask& task, const Span& span, const BlockRows& rows) {
        const std::int64_t pairs = task.head_dim / 2;
        const std::int64_t chunks = pairs / Block::groups_whole;
        const std::int64_t rest = pairs - chunks * Block::groups_whole;
        const auto run = [&](const Dims& dims) {
            tiles.configure(rows.tile_rows, dims.pairs);
            std::int64_t block = span.block_first;
            for (; block + 2 <= span.block_end; block += 2) block_scores<down, 2>(task, span, rows, dims, block);
            if (block < span.block_end) block_scores<down, 1>(task, span, rows, dims, block);
        };
        if (chunks > 0) run({.pair = 0, .pairs = Block::groups_whole, .chunks = chunks, .adds = false});
        if (rest > 0) run({.pair = chunks * Block::groups_whole, .pairs = rest, .chunks = 1, .adds = chunks > 0});
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
                __builtin_memcpy(to + token / 2 * dims_together * pair_bytes + i * line_bytes, &pairs, sizeof pairs);
            }
        }
    }

    // out[rows, dims d … d + across * 16) = sum over tokens of weight * value
    template <int down, int across>
    static void weighted_values(const AttentionTask& task, const Span& span, const BlockRows& rows, std::int64_t d) {
        Block::template clear<down, across>();
        TileFactors from{.first = Rows::weights_of(task, rows.first),
                         .second = Rows::weights_of(task, rows.second),
                         .row_stride = task.score_stride * static_cast<std::int64_t>(sizeof(float)),
                         .left = nullptr,
                         .right = nullptr,
                         .column_stride = 0};
        const std::int64_t blocks = span.block_end - span.block_first;
        for (std::int64_t block = span.block_first; block < span.block_end; ++block) {
            if (down == 1 && d == 0) prefetch_ahead(task, span, blocks + block - span.block_first);
            const std::int64_t origin = block * kv_block_size;
            from.left = Plan::keys_of(task, block) + task.value_offset + d * pair_bytes;
            from.column_stride = task.value_stride * pair_bytes;
            alignas(64) std::byte seen[kv_block_size / 2][extent(dims_together * 4)];
            if (origin < span.token_first || origin + kv_block_size > span.token_end) {
                copy_seen<across>(from.left, from.column_stride, span.token_first - origin, span.token_end - origin, seen[0]);
                from.left = seen[0];
                from.column_stride = sizeof seen[0];
            }
            from.right = from.left + line_bytes;
            Block::template multiply<down, across, false>(from, []() __attribute__((always_inline)){});
            from.first += kv_block_size * 2;
            from.second += kv_block_size * 2;
        }
        alignas(64) float sums[2][Block::tile_rows_max][extent(dims_together)];
        Block::template store<down, across>({.first = reinterpret_cast<std::byte*>(sums[0][0]),
                                             .second = reinterpret_cast<std::byte*>(sums[1][0]),
                                             .stride = sizeof sums[0][0]});
        for (int tile = 0; tile < down; ++tile) {
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

    template <int down>
    static void values(Block& tiles, const AttentionTask& task, const Span& span, const BlockRows& rows) {
        tiles.configure(rows.tile_rows, kv_block_size / 2);
        std::int64_t d = 0;
        for (; d + dims_together <= task.value_stride; d += dims_together) weighted_values<down, 2>(task, span, rows, d);
        if (d < task.value_stride) weighted_values<down, 1>(task, span, rows, d);
    }

    template <int down>
    static void run_rows(const AttentionTask& task, const Span& span, const RowCut& cut) {
        const auto rows_of = [&](std::int64_t block) {
            return BlockRows{.first = cut.first_tile(block), .second = cut.second_tile(block), .tile_rows = cut.tile_rows};
        };
        Block tiles;
        for (std::int64_t block = 0; block < cut.blocks; ++block) scores<down>(tiles, task, span, rows_of(block));
        Plan::template weigh_all<Rows>(task, span, cut.rows);
        for (std::int64_t block = 0; block < cut.blocks; ++block) values<down>(tiles, task, span, rows_of(block));
    }

    static void run(const AttentionTask& task) {
        if (task.layout != KvLayout::bfloat16_pairs) return run_plain_attention<Isa>(task);
        const Span span = Plan::span_of(task);
        const RowCut cut(task.positions * task.group);
        Plan::template narrow_all_queries<Rows>(task, cut.rows);
        if (cut.has_two_tiles()) {
            run_rows<2>(task, span, cut);
        } else {
            run_rows<1>(task, span, cut);
        }
    }
};

}  // namespace lorry::kernels::cpu
