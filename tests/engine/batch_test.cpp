// The arrays of a step for sequences in every state.
#include "engine/batch.h"

#include <gtest/gtest.h>

#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/hash_model.h"

namespace lorry::engine {
namespace {

Request request_of(RequestId id, std::vector<TokenId> prompt) {
    Request request{.id = id, .prompt = std::move(prompt)};
    request.max_tokens = 8;
    request.drawing = shared({.sampling = {.min_tokens = 2}, .end_tokens = {9}});
    request.final_targets = {3};
    return request;
}

// Three sequences: one whose prompt is to be computed, one whose first token is known, one whose first token a queued step draws.
TEST(Batch, TakesFromTheStepBeforeWhatIsNotKnown) {
    const auto model = tests::make_hash_model(100, 32, 8);
    Batch batch(32, 8, 8);
    Sequence fresh(request_of(1, {1, 2, 3}), 0, {}, tests::gpt2_tokenizer());
    Sequence known(request_of(2, {4, 5}), 1, {}, tests::gpt2_tokenizer());
    known.computed = 2;
    known.accept({.token = 6, .logprob = 0.0F});
    Sequence drawn(request_of(3, {7, 8}), 2, {}, tests::gpt2_tokenizer());
    drawn.queued = {.rows = 2, .draws = 1, .draw_row = 5};
    for (Sequence* sequence : {&fresh, &known, &drawn}) sequence->blocks = {0};
    batch.add(fresh, 3, 0);
    batch.add(known, 1, 0);
    batch.add(drawn, 1, 0);
    batch.build(*model);

    const kernels::StepInputs& step = batch.step();
    EXPECT_EQ(std::vector(step.tokens.begin(), step.tokens.begin() + 4), (std::vector<TokenId>{1, 2, 3, 6}));
    EXPECT_EQ(std::vector(step.positions.begin(), step.positions.end()), (std::vector<std::int32_t>{0, 1, 2, 2, 2}));
    ASSERT_EQ(step.drawn.size(), 1U);
    EXPECT_EQ(step.drawn[0].row, 4);
    EXPECT_EQ(step.drawn[0].sample_row, 5);
    EXPECT_EQ(step.sequences[2].position, 2);

    ASSERT_EQ(batch.sample_rows().size(), 3U);
    const auto said = [&](std::size_t i) {
        const kernels::SampleRow& row = batch.sample_rows()[i];
        return std::to_string(row.position) + (row.ends_with_drawn ? " drawn" : "") + (row.banned.empty() ? "" : " banned") +
               (row.targets.empty() ? "" : " targets");
    };
    EXPECT_EQ(said(0), "3 banned targets");
    EXPECT_EQ(said(1), "3 banned");
    EXPECT_EQ(said(2), "3 drawn banned");
}

TEST(Batch, ForgetsASequenceThatLeavesAQueuedStep) {
    const auto model = tests::make_hash_model(100, 32, 8);
    Batch batch(32, 8, 8);
    Sequence stays(request_of(1, {1}), 0, {}, tests::gpt2_tokenizer());
    Sequence leaves(request_of(2, {2}), 1, {}, tests::gpt2_tokenizer());
    for (Sequence* sequence : {&stays, &leaves}) {
        sequence->blocks = {0};
        batch.add(*sequence, 1, 0);
    }
    batch.build(*model);
    batch.drop(leaves);
    EXPECT_EQ(batch.entries()[0].sequence, &stays);
    EXPECT_EQ(batch.entries()[1].sequence, nullptr);
    EXPECT_EQ(batch.step().rows, 2);
}

}  // namespace
}  // namespace lorry::engine
