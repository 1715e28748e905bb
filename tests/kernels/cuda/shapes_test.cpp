// The host's arithmetic for the GPU's kernels, which needs no device: work lists, padded sizes, changes of logits.
#include "kernels/cuda/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace lorry::kernels::cuda {

namespace {

// "rows 3+2 spans 0-2 slot 5, …": packed rows, spans and first slot of each piece.
std::string told(const std::vector<AttentionPiece>& pieces) {
    std::string text;
    for (const AttentionPiece& piece : pieces) {
        text += (text.empty() ? "" : ", ") + std::string("rows ") + std::to_string(piece.packed_begin) + "+" +
                std::to_string(piece.packed_count) + " spans " + std::to_string(piece.span_begin) + "-" + std::to_string(piece.span_end) +
                " slot " + std::to_string(piece.slot);
    }
    return text;
}

struct Planned {
    explicit Planned(std::int64_t position, std::int64_t rows, std::int64_t group, std::optional<std::int64_t> window = {},
                     int head_dim = 64) {
        const std::vector<BlockId> blocks(static_cast<std::size_t>(ceil_div(position + rows, kv_block_size)));
        const StepSequence sequence{.row_begin = 0, .row_count = rows, .position = position, .blocks = blocks};
        plan_attention({&sequence, 1}, {.group = group, .kv_heads = 2, .padded_head_dim = head_dim}, window, plan);
    }
    AttentionPlan plan;
};

TEST(CudaShapes, MatmulsArePaddedToTheNextOfFewSizes) {
    EXPECT_THAT(matmul_buckets(), ::testing::ElementsAre(16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768,
                                                         896, 1024, 1280, 1536, 1792, 2048));
    std::int64_t below = 0;
    for (const std::int64_t bucket : matmul_buckets()) {
        EXPECT_EQ(matmul_bucket(below + 1), bucket);
        EXPECT_EQ(matmul_bucket(bucket), bucket);
        below = bucket;
    }
    EXPECT_EQ(below, matmul_rows_max);
}

// Pins: the memory of the formats as docs/gpu.md states it; rows at other alignments could not be copied 16 bytes at a time.
TEST(CudaShapes, ABlockOfTheCacheHoldsElementsAndOfFp8TheirScales) {
    const KvShape shape{.layers = 5, .kv_heads = 3, .head_dim = 100};
    EXPECT_EQ(kv_layer_block_bytes(shape, Format::float32), std::size_t{2 * 3 * 64 * 128 * 4});
    EXPECT_EQ(kv_layer_block_bytes(shape, Format::bfloat16), std::size_t{2 * 3 * 64 * 128 * 2});
    EXPECT_EQ(kv_layer_block_bytes(shape, Format::fp8_rows), std::size_t{2 * 3 * 64 * (128 + 4)});
    for (const std::int64_t head_dim : {1, 64, 80, 96, 128, 256}) {
        EXPECT_EQ(kv_head_bytes(Format::fp8_rows, *padded_head_dim(head_dim)) % 16, 0);
        EXPECT_EQ(kv_scales_offset(*padded_head_dim(head_dim)) % 16, 0);
    }
    EXPECT_THROW(kv_layer_block_bytes({.layers = 1, .kv_heads = 1, .head_dim = 257}, Format::fp8_rows), std::runtime_error);
}

TEST(CudaShapes, ADecodedRowGetsABlockPerSpanAndOneMerge) {
    const Planned planned(600, 1, 4);
    EXPECT_EQ(told(planned.plan.narrow), "rows 0+4 spans 0-1 slot 0, rows 0+4 spans 1-2 slot 4, rows 0+4 spans 2-3 slot 8");
    EXPECT_TRUE(planned.plan.wide.empty());
    ASSERT_EQ(planned.plan.merges.size(), 1U);
    EXPECT_EQ(planned.plan.merges[0].spans, 3);
    EXPECT_EQ(planned.plan.slots, 12);
    EXPECT_EQ(attention_workspace_bytes(planned.plan.slots, {.group = 4, .kv_heads = 2, .padded_head_dim = 64}), 12U * 2 * 66 * 4);
}

// Pins: partial results had no limit, and a step had to allocate memory for them.
TEST(CudaShapes, RowsWhosePartialResultsWouldTakeTooMuchWalkTheirSpans) {
    constexpr std::int64_t context = 131'072;
    constexpr std::int64_t sequences = 256;
    constexpr AttentionHeads heads{.group = 4, .kv_heads = 8, .padded_head_dim = 128};
    const std::vector<BlockId> blocks(context / kv_block_size);
    std::vector<StepSequence> decoded;
    for (std::int64_t row = 0; row < sequences; ++row) {
        decoded.push_back({.row_begin = row, .row_count = 1, .position = context - 1, .blocks = blocks});
    }
    AttentionPlan plan;
    plan_attention(decoded, heads, std::nullopt, plan);
    EXPECT_EQ(plan.merges.size() + plan.wide.size(), std::size_t{sequences});
    EXPECT_EQ(std::ssize(plan.merges), plan.slots / (4 * context / kv_span));
    EXPECT_GT(plan.merges.size(), 10U);
    EXPECT_LE(attention_workspace_bytes(plan.slots, heads), attention_workspace_most);
    EXPECT_LE(plan.slots, attention_slots_most(sequences, context, heads));
    EXPECT_EQ(attention_slots_most(3, 257, heads), 3 * narrow_rows * 2);
    EXPECT_EQ(attention_slots_most(0, 0, heads), 0);
    EXPECT_EQ(attention_slots_most(sequences, context, {.group = 17, .kv_heads = 1, .padded_head_dim = 64}), 0);
}

TEST(CudaShapes, SpansBeginAndEndExactlyWithTheContext) {
    EXPECT_EQ(told(Planned(255, 1, 1).plan.narrow), "rows 0+1 spans 0-1 slot 0");
    EXPECT_EQ(told(Planned(256, 1, 1).plan.narrow), "rows 0+1 spans 0-1 slot 0, rows 0+1 spans 1-2 slot 1");
    // A window of 256 tokens at position 511 is exactly the second span; one token more reaches into the first.
    EXPECT_EQ(told(Planned(511, 1, 1, 256).plan.narrow), "rows 0+1 spans 1-2 slot 0");
    EXPECT_EQ(told(Planned(511, 1, 1, 257).plan.narrow), "rows 0+1 spans 0-1 slot 0, rows 0+1 spans 1-2 slot 1");
}

TEST(CudaShapes, PrefilledRowsWalkTheirSpansInBlocksOfManyPackedRows) {
    const Planned planned(200, 50, 3);
    // Packed row 128 is query token 42, at position 242; the last, token 49, at 249.
    EXPECT_EQ(told(planned.plan.wide), "rows 128+22 spans 0-1 slot 0, rows 0+128 spans 0-1 slot 0");
    EXPECT_TRUE(planned.plan.narrow.empty());
    EXPECT_EQ(told(Planned(240, 20, 4, {}, 256).plan.wide), "rows 64+16 spans 0-2 slot 0, rows 0+64 spans 0-1 slot 0");
}

// Pins: prefills had partial results, which took gigabytes and were written and read for every span.
TEST(CudaShapes, PrefilledRowsHaveNoPartialResults) {
    const Planned planned(0, 4096, 4);
    EXPECT_EQ(planned.plan.slots, 0);
    EXPECT_TRUE(planned.plan.merges.empty());
}

// Pins: the longest piece of a causal prefill started last, so that the whole chip waited for it.
TEST(CudaShapes, TheLongestPiecesOfAPrefillComeFirst) {
    EXPECT_EQ(told(Planned(0, 768, 1, 300).plan.wide),
              "rows 512+128 spans 0-3 slot 0, rows 640+128 spans 1-3 slot 0, rows 384+128 spans 0-2 slot 0, "
              "rows 256+128 spans 0-2 slot 0, rows 128+128 spans 0-1 slot 0, rows 0+128 spans 0-1 slot 0");
}

TEST(CudaShapes, SequencesFollowEachOtherInRowsAndBlocks) {
    const std::vector<BlockId> first(3);
    const std::vector<BlockId> second(1);
    const std::vector<StepSequence> sequences{{.row_begin = 0, .row_count = 1, .position = 130, .blocks = first},
                                              {.row_begin = 1, .row_count = 2, .position = 0, .blocks = second}};
    AttentionPlan plan;
    plan_attention(sequences, {.group = 1, .kv_heads = 1, .padded_head_dim = 16}, std::nullopt, plan);
    ASSERT_EQ(plan.narrow.size(), 2U);
    EXPECT_EQ(plan.narrow[1].blocks_begin, 3);
    EXPECT_EQ(plan.narrow[1].row_begin, 1);
    EXPECT_EQ(plan.narrow[1].position, 0);
    EXPECT_EQ(plan.narrow[1].slot, 1);
}

TEST(CudaShapes, HeadsArePaddedToTheNextWidthThatIsCompiled) {
    EXPECT_EQ(padded_head_dim(2), 16);
    EXPECT_EQ(padded_head_dim(64), 64);
    EXPECT_EQ(padded_head_dim(65), 80);
    EXPECT_EQ(padded_head_dim(256), 256);
    EXPECT_EQ(padded_head_dim(257), std::nullopt);
}

TEST(CudaShapes, BlocksHaveWholeWarps) {
    EXPECT_EQ(threads_for(1, 256), 32);
    EXPECT_EQ(threads_for(33, 256), 64);
    EXPECT_EQ(threads_for(5000, 256), 256);
}

// Pins: 64 rows of a model's width occupy every processor of a large chip.
TEST(CudaShapes, RowsAreMovedInFoursByOneBlockOrSeveral) {
    const auto parts = [](std::int64_t columns) { return std::pair(row_parts(columns).blocks, row_parts(columns).threads); };
    EXPECT_EQ(row_threads(1), 32);
    EXPECT_EQ(row_threads(129), 64);
    EXPECT_EQ(row_threads(4096), 1024);
    EXPECT_EQ(row_threads(14336), 1024);
    EXPECT_EQ(parts(1), std::pair(1, 32));
    EXPECT_EQ(parts(1024), std::pair(1, 256));
    EXPECT_EQ(parts(1025), std::pair(2, 256));
    EXPECT_EQ(parts(14336), std::pair(14, 256));
}

std::string told(const std::vector<LoraPiece>& pieces) {
    std::string text;
    for (const LoraPiece& piece : pieces) {
        text += std::to_string(piece.group) + "." + std::to_string(piece.part) + ":" + std::to_string(piece.row_begin) + "+" +
                std::to_string(piece.row_count) + " at " + std::to_string(piece.sums_begin) + " x " + std::to_string(piece.splits) + ", ";
    }
    return text;
}

TEST(CudaShapes, LoraRowsAreCutPerGroupAndExpandedPerPart) {
    const std::vector<LoraGroup> groups{
        {.row_begin = 2, .row_count = 40}, {.row_begin = 42, .row_count = 3}, {.row_begin = 45, .row_count = 1}};
    const std::vector<LoraShape> shapes{{.rank_sum = 24, .parts = 2}, {}, {.rank_sum = 8, .parts = 1}};
    LoraPlan plan;
    plan_lora(groups, shapes, 3, false, plan);
    EXPECT_EQ(told(plan.shrink), "0.0:2+32 at 0 x 3, 0.0:34+8 at 2304 x 3, 2.0:45+1 at 2880 x 3, ");
    EXPECT_EQ(told(plan.expand),
              "0.0:2+32 at 0 x 3, 0.1:2+32 at 0 x 3, 0.0:34+8 at 2304 x 3, 0.1:34+8 at 2304 x 3, 2.0:45+1 at 2880 x 3, ");
    EXPECT_EQ(plan.sums, 3 * (40 * 24 + 8));
}

TEST(CudaShapes, BlocksThatFillAChipWalkTheirSplits) {
    const std::vector<LoraGroup> few{{.row_begin = 0, .row_count = 263 * 32}};
    const std::vector<LoraGroup> enough{{.row_begin = 0, .row_count = 132 * 32}};
    const std::vector<LoraShape> narrow{{.rank_sum = 64, .parts = 1}};
    const std::vector<LoraShape> wide{{.rank_sum = 65, .parts = 1}};
    LoraPlan plan;
    plan_lora(few, narrow, 8, false, plan);
    EXPECT_EQ(plan.sums, 263 * 32 * 8 * 64);
    plan_lora(enough, wide, 8, false, plan);
    EXPECT_EQ(plan.sums, 132 * 32 * 65);
    EXPECT_EQ(plan.shrink.size(), 132U);
    EXPECT_EQ(plan.shrink.back().splits, 1);
    plan_lora(enough, wide, 8, true, plan);
    EXPECT_EQ(plan.sums, 132 * 32 * 8 * 65) << "the grid has these blocks in any case";
}

// Pins: memory for partial sums was not reserved, and was allocated while the batch ran.
TEST(CudaShapes, NoPlanOfLowRankUpdatesHasMoreSumsThanWereReckonedWith) {
    constexpr std::uint64_t seed = 7;
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto number = [&](std::int64_t low, std::int64_t high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random); };
    double fullest = 0.0;
    for (int i = 0; i < 3000; ++i) {
        const std::int64_t rows = number(1, 16384);
        const std::int64_t rank_sum = 8 * number(1, 96);
        const bool one_size = number(0, 1) == 0;
        std::vector<LoraGroup> groups;
        std::vector<LoraShape> shapes;
        for (std::int64_t row = 0; row < rows;) {
            const std::int64_t count = std::min(rows - row, number(0, 2) == 0 ? number(1, 3) : number(1, rows));
            groups.push_back({.row_begin = row, .row_count = count});
            shapes.push_back({.rank_sum = one_size ? rank_sum : 8 * number(1, rank_sum / 8), .parts = number(1, 3)});
            row += count;
        }
        const bool fixed_grid = number(0, 3) == 0;
        LoraPlan plan;
        plan_lora(groups, shapes, 16, fixed_grid, plan);
        const std::int64_t most = lora_sums_most(rows, fixed_grid ? rows : 0, rank_sum);
        ASSERT_LE(plan.sums, most) << rows << " rows of up to " << rank_sum << " ranks";
        fullest = std::max(fullest, static_cast<double>(plan.sums) / static_cast<double>(most));
    }
    EXPECT_GT(fullest, 0.9);
}

TEST(CudaShapes, SplitsAreAFewHundredFeaturesAndAtMostSixteen) {
    const auto splits = [](std::int64_t features) { return ceil_div(features, lora_split_features(features)); };
    EXPECT_EQ(splits(1), 1);
    EXPECT_EQ(splits(512), 1);
    EXPECT_EQ(splits(513), 2);
    EXPECT_EQ(lora_split_features(513), 320);
    EXPECT_EQ(splits(4096), 8);
    EXPECT_EQ(splits(14336), 16);
    EXPECT_EQ(lora_split_features(14336), 896);
    EXPECT_EQ(splits(100000), 16);
}

TEST(CudaShapes, AnAdapterOfAllProjectionsOfEightBillionParametersHasFiveMegabytesPerRank) {
    // q, k, v, o, gate, up, down of 32 layers with hidden 4,096, intermediate 14,336 and 8 kv heads of 128.
    const std::int64_t shapes[][2] = {{4096, 4096}, {4096, 1024}, {4096, 1024}, {4096, 4096}, {4096, 14336}, {4096, 14336}, {14336, 4096}};
    LoraFloor layer;
    for (const auto& [in, out] : shapes) {
        const LoraFloor part = lora_floor(32, in, out, 16, Format::bfloat16);
        layer.weight_bytes += part.weight_bytes;
        layer.flops += part.flops;
    }
    EXPECT_EQ(32 * layer.weight_bytes, 16 * 5'242'880);
    EXPECT_EQ(layer.flops, layer.weight_bytes * 32);
    EXPECT_EQ(lora_floor(3, 10, 20, 8, Format::float32).row_bytes, 3 * (10 * 4 + 20 * 8));
}

TEST(CudaShapes, GraphsAreForTheSizesThatMatmulsArePaddedToAndForTheWholeBatch) {
    EXPECT_THAT(graph_rows(40), ::testing::ElementsAre(40, 32, 16));
    EXPECT_THAT(graph_rows(32), ::testing::ElementsAre(32, 16));
    EXPECT_THAT(graph_rows(5), ::testing::ElementsAre(5));
    EXPECT_EQ(graph_rows(256).size(), 12U);
    EXPECT_EQ(graph_rows(1'000'000).front(), matmul_rows_max);
}

// Pins: a graph's grids omit a piece, or have no blocks for a kind of piece that its steps have.
TEST(CudaShapes, GridsThatDoNotKnowTheWorkHaveBlocksForEveryKindOfIt) {
    for (const std::int64_t group : {1, 4, 16, 17, 71, 130}) {
        const Planned step(5000, 1, group);
        const AttentionSize size = attention_size(3, {.group = group, .kv_heads = 2, .padded_head_dim = 64}, 132);
        EXPECT_EQ(size.narrow > 0, !step.plan.narrow.empty());
        EXPECT_EQ(size.wide, 3 * std::ssize(step.plan.wide));
        EXPECT_EQ(size.merges, 3 * std::ssize(step.plan.merges));
    }
    EXPECT_EQ(attention_size(3, {.group = 4, .kv_heads = 8, .padded_head_dim = 64}, 132).narrow, 20 * 132 / 8);
    EXPECT_EQ(attention_size(512, {.group = 4, .kv_heads = 8, .padded_head_dim = 64}, 132).narrow, 512);
    EXPECT_EQ(lora_size(3, 1000, 7), (LoraSize{.shrink = 3, .expand = 3, .rank_sum = 128, .out_features = 500, .splits = 7}));
    EXPECT_EQ(lora_size(300, 1000, 7).shrink, 32);
}

TEST(CudaShapes, ALogitIsChangedOncePerTokenThatIsBiasedOrBanned) {
    const std::vector<TokenId> banned{9, 3, 9};
    const std::vector<TokenBias> bias{{7, 2.0F}, {3, 1.0F}, {7, 0.5F}};
    std::vector<LogitChange> changes;
    append_logit_changes({.frequency_penalty = 0.25F, .output = banned, .logit_bias = bias, .banned = banned}, changes);
    std::string text;
    for (const LogitChange& change : changes) {
        text +=
            std::to_string(change.token) + ": +" + std::to_string(change.bias).substr(0, 4) + (change.banned != 0 ? " banned" : "") + "\n";
    }
    EXPECT_EQ(text,
              "3: +1.00 banned\n"
              "7: +2.50\n"
              "9: +0.00 banned\n");
}

}  // namespace

}  // namespace lorry::kernels::cuda
