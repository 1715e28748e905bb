// Computes launch shapes and work lists; see shapes.h.
#include "kernels/cuda/shapes.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>

#include "schema/check.h"

namespace lorry::kernels::cuda {

namespace {

// A split is long enough that its partial sums are few compared with what it reads. With more splits than lora_splits_most, expand would
// take longer to read them than shrink to compute them. lora_blocks_enough fills a chip of 132 processors twice.
constexpr std::int64_t lora_split_least = 512;
constexpr std::int64_t lora_splits_most = 16;
constexpr std::int64_t lora_blocks_enough = 264;

// Threads of a block if a row has several blocks: few enough that a few rows fill a chip, enough that many rows do not make too many
// blocks.
constexpr int row_part_threads = 256;

// Blocks of launches that do not know the amount of work: enough to fill a chip, and few enough that starting blocks without work takes
// little time. For attention, four for each of the five blocks that a processor holds at a time.
constexpr int attention_blocks_per_processor = 20;
constexpr std::int64_t lora_pieces_at_once = 32;
constexpr std::int64_t lora_ranks_at_once = 2 * lora_ranks;

constexpr std::array padded_head_dims{16, 32, 64, 80, 96, 128, 256};

std::int32_t narrow(std::int64_t x) {
    CHECK(x >= 0 && x <= std::numeric_limits<std::int32_t>::max(), "a step's tables have 32-bit indices");
    return static_cast<std::int32_t>(x);
}

std::int64_t slots_that_fit(const AttentionHeads& heads) {
    return static_cast<std::int64_t>(attention_workspace_most / attention_workspace_bytes(1, heads));
}

}  // namespace

int threads_for(std::int64_t columns, int most) { return static_cast<int>(std::min<std::int64_t>(round_up(columns, 32), most)); }

int row_threads(std::int64_t columns) { return threads_for(ceil_div(columns, row_four), row_threads_max); }

RowParts row_parts(std::int64_t columns) {
    const std::int64_t fours = ceil_div(columns, row_four);
    const int threads = threads_for(fours, row_part_threads);
    return {.blocks = static_cast<int>(ceil_div(fours, threads)), .threads = threads};
}

std::optional<int> padded_head_dim(std::int64_t head_dim) {
    for (const int padded : padded_head_dims) {
        if (head_dim <= padded) return padded;
    }
    return std::nullopt;
}

std::size_t kv_layer_block_bytes(const KvShape& shape, Format format) {
    const auto padded = padded_head_dim(shape.head_dim);
    if (!padded) {
        throw std::runtime_error("heads of " + std::to_string(shape.head_dim) +
                                 " dimensions are wider than the GPU's attention takes (256)");
    }
    return static_cast<std::size_t>(2 * shape.kv_heads * kv_head_bytes(format, *padded));
}

std::int64_t matmul_bucket(std::int64_t rows) {
    CHECK(rows > 0 && rows <= matmul_rows_max, "a matmul has between 1 and matmul_rows_max rows");
    std::int64_t step = 16;
    while (rows > 8 * step) step *= 2;
    return round_up(rows, step);
}

std::vector<std::int64_t> matmul_buckets() {
    std::vector<std::int64_t> buckets;
    for (std::int64_t rows = 1; rows <= matmul_rows_max; rows = buckets.back() + 1) buckets.push_back(matmul_bucket(rows));
    return buckets;
}

std::vector<std::int64_t> graph_rows(std::int64_t rows_max) {
    std::vector<std::int64_t> rows = matmul_buckets();
    std::erase_if(rows, [&](std::int64_t bucket) { return bucket >= rows_max; });
    rows.push_back(std::min(rows_max, matmul_rows_max));
    std::ranges::reverse(rows);
    return rows;
}

void plan_attention(std::span<const StepSequence> sequences, const AttentionHeads& heads, std::optional<std::int64_t> window,
                    AttentionPlan& plan) {
    plan.narrow.clear();
    plan.wide.clear();
    plan.merges.clear();
    plan.slots = 0;
    const std::int64_t slots_most = slots_that_fit(heads);
    std::int64_t blocks_begin = 0;
    for (const StepSequence& sequence : sequences) {
        const std::int64_t packed = sequence.row_count * heads.group;
        const std::int64_t spans_most = (sequence.position + sequence.row_count - 1) / kv_span + 1;
        const bool few = packed <= narrow_rows && plan.slots + packed * spans_most <= slots_most;
        const std::int64_t tile = few ? narrow_rows : wide_rows(heads.padded_head_dim);
        for (std::int64_t begin = 0; begin < packed; begin += tile) {
            const std::int64_t count = std::min(tile, packed - begin);
            // The tokens that at least one of these rows sees.
            const std::int64_t first_row = sequence.position + begin / heads.group;
            const std::int64_t last_row = sequence.position + (begin + count - 1) / heads.group;
            const std::int64_t first_seen = window ? std::max<std::int64_t>(0, first_row - *window + 1) : 0;
            AttentionPiece piece{.row_begin = narrow(sequence.row_begin),
                                 .position = narrow(sequence.position),
                                 .packed_begin = narrow(begin),
                                 .packed_count = narrow(count),
                                 .blocks_begin = narrow(blocks_begin),
                                 .span_begin = narrow(first_seen / kv_span),
                                 .span_end = narrow(last_row / kv_span + 1)};
            if (!few) {
                plan.wide.push_back(piece);
                continue;
            }
            const std::int32_t spans = piece.span_end - piece.span_begin;
            plan.merges.push_back({.row_begin = piece.row_begin,
                                   .packed_begin = piece.packed_begin,
                                   .packed_count = piece.packed_count,
                                   .slot = narrow(plan.slots),
                                   .spans = spans});
            for (std::int32_t i = 0; i < spans; ++i) {
                piece.slot = narrow(plan.slots);
                piece.span_end = piece.span_begin + 1;
                plan.narrow.push_back(piece);
                ++piece.span_begin;
                plan.slots += count;
            }
        }
        blocks_begin += static_cast<std::int64_t>(sequence.blocks.size());
    }
    // The longest pieces come first, so that little is left to wait for at the end. Among equals, a sequence's later rows come first: they
    // see more of their last span.
    const auto order = [](const AttentionPiece& piece) {
        return std::tuple(piece.span_begin - piece.span_end, piece.row_begin, -piece.packed_begin);
    };
    std::ranges::sort(plan.wide, {}, order);
}

AttentionSize attention_size(std::int64_t rows, const AttentionHeads& heads, int processors) {
    if (heads.group > narrow_rows) {
        return {.narrow = 0, .wide = static_cast<int>(rows * ceil_div(heads.group, wide_rows(heads.padded_head_dim))), .merges = 0};
    }
    const std::int64_t enough = ceil_div(std::int64_t{attention_blocks_per_processor} * processors, heads.kv_heads);
    return {.narrow = static_cast<int>(std::max(rows, enough)), .wide = 0, .merges = static_cast<int>(rows)};
}

std::size_t attention_workspace_bytes(std::int64_t slots, const AttentionHeads& heads) {
    return static_cast<std::size_t>(slots * heads.kv_heads * (heads.padded_head_dim + 2)) * sizeof(float);
}

std::int64_t attention_slots_most(std::int64_t sequences, std::int64_t context, const AttentionHeads& heads) {
    if (heads.group > narrow_rows) return 0;  // even one token has more packed rows than a narrow piece
    return std::min(slots_that_fit(heads), sequences * narrow_rows * ceil_div(context, kv_span));
}

std::int64_t lora_split_features(std::int64_t in_features) {
    const std::int64_t splits = std::clamp<std::int64_t>(ceil_div(in_features, lora_split_least), 1, lora_splits_most);
    return round_up(std::max<std::int64_t>(1, ceil_div(in_features, splits)), lora_depth);
}

void plan_lora(std::span<const LoraGroup> groups, std::span<const LoraShape> shapes, std::int64_t splits, bool fixed_grid, LoraPlan& plan) {
    plan.shrink.clear();
    plan.expand.clear();
    plan.sums = 0;
    std::int64_t blocks = 0;
    for (std::size_t i = 0; i < groups.size(); ++i) {
        if (shapes[i].parts > 0) blocks += ceil_div(groups[i].row_count, lora_rows) * ceil_div(shapes[i].rank_sum, lora_ranks);
    }
    const std::int64_t shares = fixed_grid || blocks < lora_blocks_enough ? splits : 1;
    for (std::size_t i = 0; i < groups.size(); ++i) {
        if (shapes[i].parts == 0) continue;
        for (std::int64_t row = 0; row < groups[i].row_count; row += lora_rows) {
            LoraPiece piece{.group = narrow(static_cast<std::int64_t>(i)),
                            .part = 0,
                            .row_begin = narrow(groups[i].row_begin + row),
                            .row_count = narrow(std::min(lora_rows, groups[i].row_count - row)),
                            .sums_begin = plan.sums,
                            .splits = narrow(shares)};
            plan.sums += piece.row_count * shares * shapes[i].rank_sum;
            plan.shrink.push_back(piece);
            for (; piece.part < shapes[i].parts; ++piece.part) plan.expand.push_back(piece);
        }
    }
}

std::int64_t lora_sums_most(std::int64_t rows, std::int64_t fixed_grid_rows, std::int64_t rank_sum) {
    // Only plans with fewer than lora_blocks_enough blocks of lora_rows rows and lora_ranks ranks are split.
    const std::int64_t split = (lora_blocks_enough - 1) * lora_rows * lora_ranks * lora_splits_most;
    const std::int64_t rows_split = std::min(rows, lora_blocks_enough * lora_rows) * lora_splits_most * rank_sum;
    return std::max({rows * rank_sum, fixed_grid_rows * lora_splits_most * rank_sum, std::min(split, rows_split)});
}

LoraSize lora_size(std::int64_t rows, std::int64_t out_features, std::int64_t splits) {
    const int pieces = narrow(std::min(rows, lora_pieces_at_once));
    // Most adapters have several parts, each of which covers only some of the outputs.
    return {.shrink = pieces,
            .expand = pieces,
            .rank_sum = narrow(lora_ranks_at_once),
            .out_features = narrow(ceil_div(out_features, 2)),
            .splits = narrow(splits)};
}

LoraFloor lora_floor(std::int64_t rows, std::int64_t in_features, std::int64_t out_features, std::int64_t rank, Format format) {
    const auto element = static_cast<std::int64_t>(bytes_of(format));
    return {.weight_bytes = rank * (in_features + out_features) * element,
            .row_bytes = rows * (in_features * element + 2 * out_features * static_cast<std::int64_t>(sizeof(float))),
            .flops = 2 * rows * rank * (in_features + out_features)};
}

void append_logit_changes(const SampleRow& row, std::vector<LogitChange>& changes) {
    std::map<TokenId, LogitChange> by_token;
    const auto change_of = [&](TokenId token) -> LogitChange& {
        LogitChange& change = by_token[token];
        change.token = token;
        return change;
    };
    for (const TokenBias& bias : row.logit_bias) change_of(bias.token).bias += bias.bias;
    for (const TokenId token : row.banned) change_of(token).banned = 1;
    for (const auto& [token, change] : by_token) changes.push_back(change);
}

}  // namespace lorry::kernels::cuda
