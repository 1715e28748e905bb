// The host's arithmetic for the GPU's kernels, which needs none: work lists, padded sizes, what becomes of logits.
#include "kernels/cuda/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
    explicit Planned(std::int64_t position, std::int64_t rows, std::int64_t group, std::optional<std::int64_t> window = {}) {
        const std::vector<BlockId> blocks(static_cast<std::size_t>(ceil_div(position + rows, kv_block_size)));
        const StepSequence sequence{.row_begin = 0, .row_count = rows, .position = position, .blocks = blocks};
        plan_attention({&sequence, 1}, group, window, plan);
    }
    AttentionPlan plan;
};

TEST(CudaShapes, ADecodedRowGetsABlockPerSpanAndOneMerge) {
    const Planned planned(600, 1, 4);
    EXPECT_EQ(told(planned.plan.narrow), "rows 0+4 spans 0-1 slot 0, rows 0+4 spans 1-2 slot 4, rows 0+4 spans 2-3 slot 8");
    EXPECT_TRUE(planned.plan.wide.empty());
    ASSERT_EQ(planned.plan.merges.size(), 1U);
    EXPECT_EQ(planned.plan.merges[0].spans, 3);
    EXPECT_EQ(planned.plan.slots, 12);
    EXPECT_EQ(attention_workspace_bytes(planned.plan, 2, 64), 12U * 2 * 66 * 4);
}

TEST(CudaShapes, SpansBeginAndEndExactlyWithTheContext) {
    EXPECT_EQ(told(Planned(255, 1, 1).plan.narrow), "rows 0+1 spans 0-1 slot 0");
    EXPECT_EQ(told(Planned(256, 1, 1).plan.narrow), "rows 0+1 spans 0-1 slot 0, rows 0+1 spans 1-2 slot 1");
    // A window of 256 tokens at position 511 is exactly the second span; one more reaches into the first.
    EXPECT_EQ(told(Planned(511, 1, 1, 256).plan.narrow), "rows 0+1 spans 1-2 slot 0");
    EXPECT_EQ(told(Planned(511, 1, 1, 257).plan.narrow), "rows 0+1 spans 0-1 slot 0, rows 0+1 spans 1-2 slot 1");
}

TEST(CudaShapes, PrefilledRowsWalkTheirSpansInBlocksOfSixtyFourPackedRows) {
    const Planned planned(200, 50, 3);
    // Packed row 128 is query token 42, at position 242; the last, token 49, at 249.
    EXPECT_EQ(told(planned.plan.wide), "rows 0+64 spans 0-1 slot 0, rows 64+64 spans 0-1 slot 64, rows 128+22 spans 0-1 slot 128");
    EXPECT_TRUE(planned.plan.narrow.empty());
    EXPECT_EQ(told(Planned(240, 20, 4).plan.wide), "rows 0+64 spans 0-1 slot 0, rows 64+16 spans 0-2 slot 64");
    EXPECT_EQ(Planned(240, 20, 4).plan.merges.size(), 2U);
}

TEST(CudaShapes, SequencesFollowEachOtherInRowsAndBlocks) {
    const std::vector<BlockId> first(3);
    const std::vector<BlockId> second(1);
    const std::vector<StepSequence> sequences{{.row_begin = 0, .row_count = 1, .position = 130, .blocks = first},
                                              {.row_begin = 1, .row_count = 2, .position = 0, .blocks = second}};
    AttentionPlan plan;
    plan_attention(sequences, 1, std::nullopt, plan);
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

TEST(CudaShapes, LoraRowsAreCutPerGroupAndExpandedPerPart) {
    const std::vector<LoraGroup> groups{
        {.row_begin = 2, .row_count = 20}, {.row_begin = 22, .row_count = 3}, {.row_begin = 25, .row_count = 1}};
    const std::vector<std::int64_t> parts{2, 0, 1};
    std::vector<LoraPiece> shrink;
    std::vector<LoraPiece> expand;
    cut_lora(groups, parts, shrink, expand);
    const auto text = [](const std::vector<LoraPiece>& pieces) {
        std::string all;
        for (const LoraPiece& piece : pieces) {
            all += std::to_string(piece.group) + "." + std::to_string(piece.part) + ":" + std::to_string(piece.row_begin) + "+" +
                   std::to_string(piece.row_count) + " ";
        }
        return all;
    };
    EXPECT_EQ(text(shrink), "0.0:2+16 0.0:18+4 2.0:25+1 ");
    EXPECT_EQ(text(expand), "0.0:2+16 0.1:2+16 0.0:18+4 0.1:18+4 2.0:25+1 ");
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
