// plan_step's arithmetic, as tables of sequences.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

namespace lorry::engine {
namespace {

const StepLimits limits{.rows = 16, .sample_rows = 8, .sequences = 4, .block_size = 4};

// "run 0:1 2:5 | admit 0:8 | preempt 1": index:rows.
std::string planned(std::span<const SequenceView> running, std::span<const SequenceView> waiting, std::int64_t blocks,
                    const StepLimits& with = limits) {
    StepPlan plan;
    plan_step(running, waiting, blocks, with, plan);
    std::string text = "run";
    for (const auto& rows : plan.running) text += " " + std::to_string(rows.index) + ":" + std::to_string(rows.rows);
    text += " | admit";
    for (const auto& rows : plan.admissions) text += " " + std::to_string(rows.index) + ":" + std::to_string(rows.rows);
    text += " | preempt";
    for (const std::size_t index : plan.preempt) text += " " + std::to_string(index);
    return text;
}

SequenceView sequence(std::int64_t known, std::int64_t computed, std::uint64_t arrival = 0) {
    SequenceView view{.known = known, .computed = computed, .arrival = arrival};
    view.blocks = (computed + limits.block_size - 1) / limits.block_size;
    view.blocks_sole = view.blocks;
    return view;
}

TEST(PlanStep, ServesDecodesBeforePrefillsAndCutsPromptsToTheBudget) {
    const std::vector<SequenceView> running{sequence(40, 8, 0), sequence(9, 8, 1)};
    EXPECT_EQ(planned(running, {}, 100), "run 1:1 0:15 | admit | preempt");
}

TEST(PlanStep, AdmitsWhatFitsIntoPlacesRowsAndBlocks) {
    const std::vector<SequenceView> waiting{sequence(6, 0), sequence(6, 0), sequence(6, 0)};
    EXPECT_EQ(planned({}, waiting, 100), "run | admit 0:6 1:6 2:4 | preempt");
    EXPECT_EQ(planned({}, waiting, 4), "run | admit 0:6 | preempt") << "each running sequence keeps a block to grow into";
}

TEST(PlanStep, CountsIdleSharedBlocksOfAWaitingSequenceAsTaken) {
    SequenceView next{.known = 12, .computed = 8, .blocks = 2, .blocks_idle = 2};
    EXPECT_EQ(planned({}, std::vector{next}, 3), "run | admit 0:4 | preempt");
    EXPECT_EQ(planned({}, std::vector{next}, 2), "run | admit | preempt");
}

TEST(PlanStep, PreemptsTheLatestWhenBlocksRunOut) {
    const std::vector<SequenceView> running{sequence(9, 8, 0), sequence(9, 8, 1), sequence(9, 8, 2)};
    EXPECT_EQ(planned(running, {}, 0), "run 0:1 1:1 | admit | preempt 2");
}

TEST(PlanStep, PreemptsByPriorityBeforeArrival) {
    std::vector<SequenceView> running{sequence(9, 8, 0), sequence(9, 8, 1)};
    running[0].priority = 3;
    EXPECT_EQ(planned(running, {}, 0), "run 1:1 | admit | preempt 0");
}

TEST(PlanStep, ShrinksAPrefillToTheBlocksThatAreLeftInsteadOfPreempting) {
    const std::vector<SequenceView> running{sequence(40, 8, 0), sequence(40, 8, 1)};
    EXPECT_EQ(planned(running, {}, 1), "run 0:4 | admit | preempt 1") << "one block is four rows; the other cannot go on";
}

TEST(PlanStep, AdmitsNobodyInAStepThatPreempts) {
    const std::vector<SequenceView> running{sequence(9, 8, 0), sequence(9, 8, 1)};
    const std::vector<SequenceView> waiting{sequence(4, 0, 2)};
    EXPECT_EQ(planned(running, waiting, 0), "run 0:1 | admit | preempt 1");
}

TEST(PlanStep, KeepsRowsWithLogitsWithinTheirLimit) {
    SequenceView scored = sequence(16, 0);
    scored.score_begin = 2;
    scored.score_end = 15;
    EXPECT_EQ(planned({}, std::vector{scored}, 100), "run | admit 0:10 | preempt") << "two rows before the scored ones, then eight";
}

TEST(PlanStep, IsEmptyOnlyWhenTheFirstWaitingSequenceDoesNotFitIntoAnEmptyPool) {
    EXPECT_EQ(planned({}, std::vector{sequence(16, 0)}, 3), "run | admit | preempt");
    EXPECT_EQ(planned({}, std::vector{sequence(16, 0)}, 4), "run | admit 0:16 | preempt");
}

}  // namespace
}  // namespace lorry::engine
