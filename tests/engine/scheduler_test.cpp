// Plans of plan_step for tables of sequences, and properties of random runs.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>

#include <fmt/format.h>

namespace lorry::engine {
namespace {

const StepLimits limits{.rows = 16, .sample_rows = 8, .sequences = 4, .block_size = 4};

// "run 0:1 2:5 | start 0:8 | preempt 1": index:rows.
std::string planned(std::span<const SequenceView> running, std::span<const SequenceView> waiting, std::int64_t blocks,
                    const StepLimits& with = limits) {
    StepPlan plan;
    plan_step(running, waiting, blocks, with, plan);
    std::string text = "run";
    for (const auto& rows : plan.running) text += " " + std::to_string(rows.index) + ":" + std::to_string(rows.rows);
    text += " | start";
    for (const auto& rows : plan.starting) text += " " + std::to_string(rows.index) + ":" + std::to_string(rows.rows);
    text += " | preempt";
    for (const std::size_t index : plan.preempt) text += " " + std::to_string(index);
    return text;
}

SequenceView sequence(std::int64_t known, std::int64_t computed, std::uint64_t turn = 0) {
    SequenceView view{.known = known, .computed = computed, .turn = turn};
    view.blocks = (computed + limits.block_size - 1) / limits.block_size;
    view.blocks_sole = view.blocks;
    return view;
}

// Pins: a draft took a row, a row with logits or a block from a sequence that needs it.
TEST(PlanStep, GivesDraftsOnlyWhatNothingElseNeeds) {
    const auto drafting = [](std::int64_t known, std::int64_t drafts, std::uint64_t turn = 0) {
        SequenceView view = sequence(known, known - 1, turn);
        view.drafts = drafts;
        return view;
    };
    const auto drafts = [](std::span<const SequenceView> running, std::span<const SequenceView> waiting, std::int64_t blocks) {
        StepPlan plan;
        plan_step(running, waiting, blocks, limits, plan);
        std::string text;
        for (const PlannedRows& rows : plan.running) text += fmt::format("{}+{}:{} ", rows.rows, rows.drafts, rows.new_blocks);
        return text;
    };
    EXPECT_EQ(drafts(std::vector{drafting(6, 3)}, {}, 100), "1+3:1 ");
    EXPECT_EQ(drafts(std::vector{drafting(6, 9)}, {}, 100), "1+7:2 ") << "8 rows with logits";
    EXPECT_EQ(drafts(std::vector{drafting(6, 9)}, {}, 1), "1+2:0 ") << "a block to grow into";
    EXPECT_EQ(drafts(std::vector{drafting(6, 9, 0), drafting(6, 9, 1)}, {}, 100), "1+6:1 1+0:0 ");
    EXPECT_EQ(drafts(std::vector{drafting(6, 3)}, std::vector{sequence(30, 0)}, 100), "1+0:0 ") << "a prompt takes all rows";
    EXPECT_EQ(drafts(std::vector{drafting(6, 3)}, std::vector{sequence(30, 0)}, 5), "1+0:0 ") << "somebody waits for blocks";
    SequenceView prompt = sequence(60, 4);
    prompt.drafts = 3;
    EXPECT_EQ(drafts(std::vector{prompt}, {}, 100), "16+0:4 ") << "the known tokens come first";
}

// Pins: a plan took more rows with logits than there are, where tokens without them are between a scored prompt and the last row.
TEST(PlanStep, CutsAScoredPromptThatForcedTokensFollow) {
    SequenceView scored = sequence(16, 0);
    scored.score_begin = 0;
    scored.score_end = 11;
    EXPECT_EQ(planned({}, std::vector{scored}, 100), "run | start 0:8 | preempt");
}

TEST(PlanStep, ServesDecodesBeforePrefillsAndCutsPromptsToTheBudget) {
    const std::vector<SequenceView> running{sequence(40, 8, 0), sequence(9, 8, 1)};
    EXPECT_EQ(planned(running, {}, 100), "run 1:1 0:15 | start | preempt");
}

TEST(PlanStep, StartsWhatFitsIntoPlacesRowsAndBlocks) {
    const std::vector<SequenceView> waiting{sequence(6, 0), sequence(6, 0), sequence(6, 0)};
    EXPECT_EQ(planned({}, waiting, 100), "run | start 0:6 1:6 2:4 | preempt");
    EXPECT_EQ(planned({}, waiting, 4), "run | start 0:6 | preempt") << "each running sequence keeps a block to grow into";
}

TEST(PlanStep, CountsIdleSharedBlocksOfAWaitingSequenceAsTaken) {
    SequenceView next{.known = 12, .computed = 8, .blocks = 2, .blocks_idle = 2};
    EXPECT_EQ(planned({}, std::vector{next}, 3), "run | start 0:4 | preempt");
    EXPECT_EQ(planned({}, std::vector{next}, 2), "run | start | preempt");
}

TEST(PlanStep, ComputesWholeTextsInOneStep) {
    const auto text = [](std::int64_t known, std::int64_t mask_rows = 0, bool large = false) {
        return SequenceView{.known = known, .samples = false, .whole = true, .mask_rows = mask_rows, .large = large};
    };
    EXPECT_EQ(planned({}, std::vector{text(10), text(7), text(6)}, 100), "run | start 0:10 2:6 | preempt") << "the next that fits";
    EXPECT_EQ(planned({}, std::vector{text(17), text(6)}, 100), "run | start | preempt") << "the first must not wait for ever";
    EXPECT_EQ(planned({}, std::vector{text(3, 6), text(3, 3), text(3, 2)}, 100), "run | start 0:3 2:3 | preempt") << "rows of logits";
    EXPECT_EQ(planned(std::vector{sequence(9, 8)}, std::vector{text(16), text(6)}, 100), "run 0:1 | start | preempt");
    EXPECT_EQ(planned({}, std::vector{text(12, 0, true), text(3)}, 100), "run | start 0:12 1:3 | preempt") << "more than a large share";
}

// Pins: a long text that one step must compute waited for ever beside sequences that decode and never leave it enough rows.
TEST(PlanStep, AnOverdueTextGetsItsRowsBeforeTheRunningSequences) {
    const auto text = [](std::int64_t known, bool overdue) {
        return SequenceView{.known = known, .samples = false, .whole = true, .overdue = overdue, .large = true};
    };
    const std::vector<SequenceView> running{sequence(9, 8, 0), sequence(9, 8, 1)};
    const std::vector<SequenceView> waiting{sequence(6, 0), text(16, false)};
    EXPECT_EQ(planned(running, waiting, 100), "run 0:1 1:1 | start 0:6 | preempt");
    StepPlan plan;
    plan_step(running, waiting, 100, limits, plan);
    EXPECT_EQ(plan.held_up, 1U);
    EXPECT_EQ(planned(running, std::vector{sequence(6, 0), text(16, true)}, 100), "run | start 1:16 | preempt") << "then they go on";
    EXPECT_EQ(planned(running, std::vector{sequence(6, 0), text(12, true)}, 100), "run 0:1 1:1 | start 1:12 0:2 | preempt");
    plan_step(running, std::vector{text(12, true)}, 100, limits, plan);
    EXPECT_EQ(plan.held_up, std::nullopt);
    // What cannot start stops nothing.
    EXPECT_EQ(planned(running, std::vector{text(16, true)}, 4), "run 0:1 1:1 | start | preempt") << "it lacks blocks";
    EXPECT_EQ(planned(running, std::vector{text(17, true)}, 100), "run 0:1 1:1 | start | preempt") << "no step has so many rows";
    StepLimits full = limits;
    full.sequences = 2;
    EXPECT_EQ(planned(running, std::vector{text(16, true)}, 100, full), "run 0:1 1:1 | start | preempt") << "it lacks a place";
}

TEST(PlanStep, PreemptsTheLatestWhenBlocksRunOut) {
    const std::vector<SequenceView> running{sequence(9, 8, 0), sequence(9, 8, 1), sequence(9, 8, 2)};
    EXPECT_EQ(planned(running, {}, 0), "run 0:1 1:1 | start | preempt 2");
}

TEST(PlanStep, PreemptsByPriorityBeforeArrival) {
    std::vector<SequenceView> running{sequence(9, 8, 0), sequence(9, 8, 1)};
    running[0].priority = 3;
    EXPECT_EQ(planned(running, {}, 0), "run 1:1 | start | preempt 0");
}

TEST(PlanStep, ShrinksAPrefillToTheBlocksThatAreLeftInsteadOfPreempting) {
    const std::vector<SequenceView> running{sequence(40, 8, 0), sequence(40, 8, 1)};
    EXPECT_EQ(planned(running, {}, 1), "run 0:4 | start | preempt 1") << "one block is four rows; the other cannot go on";
}

TEST(PlanStep, StartsNobodyInAStepThatPreempts) {
    const std::vector<SequenceView> running{sequence(9, 8, 0), sequence(9, 8, 1)};
    const std::vector<SequenceView> waiting{sequence(4, 0, 2)};
    EXPECT_EQ(planned(running, waiting, 0), "run 0:1 | start | preempt 1");
}

TEST(PlanStep, KeepsRowsWithLogitsWithinTheirLimit) {
    SequenceView scored = sequence(16, 0);
    scored.score_begin = 2;
    scored.score_end = 15;
    EXPECT_EQ(planned({}, std::vector{scored}, 100), "run | start 0:10 | preempt") << "two rows before the scored ones, then eight";
    // Forced tokens may follow the prompt: of these, only the last is drawn from.
    scored.score_end = 9;
    EXPECT_EQ(planned({}, std::vector{scored}, 100), "run | start 0:16 | preempt") << "seven that are scored, one that is drawn from";
    scored.score_end = 10;
    EXPECT_EQ(planned({}, std::vector{scored}, 100), "run | start 0:15 | preempt") << "all but the one that is drawn from";
    scored.score_end = 11;
    EXPECT_EQ(planned({}, std::vector{scored}, 100), "run | start 0:10 | preempt");
}

TEST(PlanStep, IsEmptyOnlyWhenTheFirstWaitingSequenceDoesNotFitIntoAnEmptyPool) {
    EXPECT_EQ(planned({}, std::vector{sequence(16, 0)}, 3), "run | start | preempt");
    EXPECT_EQ(planned({}, std::vector{sequence(16, 0)}, 4), "run | start 0:16 | preempt");
}

// Chain hashes of the blocks of a text. Texts with the same number share them.
std::vector<BlockHash> chain_of(std::uint64_t text, std::int64_t blocks) {
    std::vector<BlockHash> chain;
    for (std::int64_t i = 0; i < blocks; ++i) chain.push_back({.low = text, .high = static_cast<std::uint64_t>(i)});
    return chain;
}

TEST(PlanStep, HoldsBackWhoseNextBlockIsBeingWrittenInThisStep) {
    const auto text = chain_of(1, 10);
    const auto other = chain_of(2, 10);
    SequenceView first = sequence(10, 0);
    first.blocks_ahead = std::span(text).first(2);
    first.next_is_reusable = true;
    SequenceView stranger = sequence(6, 0);
    stranger.blocks_ahead = std::span(other).first(1);
    stranger.next_is_reusable = true;
    EXPECT_EQ(planned({}, std::vector{first, first, stranger}, 100), "run | start 0:10 2:6 | preempt");
    SequenceView scored = first;
    scored.next_is_reusable = false;
    EXPECT_EQ(planned({}, std::vector{first, scored}, 100), "run | start 0:10 1:6 | preempt") << "it needs these rows itself";
    SequenceView running = sequence(40, 8);
    running.blocks_ahead = std::span(text).subspan(2);
    EXPECT_EQ(planned(std::vector{running}, std::vector{first}, 100, {.rows = 60, .sample_rows = 8, .sequences = 4, .block_size = 4}),
              "run 0:32 | start 0:10 | preempt")
        << "the block that it needs first was already written";
    SequenceView behind = first;
    behind.computed = 8;
    behind.blocks = 2;
    behind.blocks_ahead = std::span(text).subspan(2, 3);
    behind.known = 24;
    EXPECT_EQ(planned(std::vector{running}, std::vector{behind}, 100), "run 0:16 | start | preempt");
    const StepLimits part{.rows = 64, .sample_rows = 8, .sequences = 4, .block_size = 64};
    SequenceView partly = sequence(40, 0);
    EXPECT_EQ(planned({}, std::vector{partly, partly}, 100, part), "run | start 0:40 1:24 | preempt") << "no block is completed";
}

TEST(PlanStep, HoldsBackWhoseNextBlockAQueuedStepWrites) {
    const auto text = chain_of(1, 10);
    SequenceView first = sequence(10, 0);
    first.blocks_ahead = std::span(text).first(2);
    first.next_is_reusable = true;
    SequenceView running = sequence(9, 8);
    EXPECT_EQ(planned(std::vector{running}, std::vector{first}, 100), "run 0:1 | start 0:10 | preempt");
    running.blocks_queued = std::span(text).first(2);
    EXPECT_EQ(planned(std::vector{running}, std::vector{first}, 100), "run 0:1 | start | preempt");
}

// A sequence whose last token a queued step draws has no rows until that step was read, and does not block others.
TEST(PlanStep, LeavesOutWhoWaitsForAQueuedStep) {
    const std::vector<SequenceView> running{sequence(8, 8, 0), sequence(9, 8, 1)};
    EXPECT_EQ(planned(running, std::vector{sequence(6, 0)}, 100), "run 1:1 | start 0:6 | preempt");
    EXPECT_EQ(planned(std::span(running).first(1), {}, 0), "run | start | preempt");
}

// A sequence of the simulation below, in blocks of four tokens.
struct Simulated {
    std::vector<BlockHash> chain;
    std::int64_t known = 0;
    std::int64_t computed = 0;
    std::uint64_t turn = 0;

    SequenceView view() const {
        const std::int64_t first = computed / 4;
        const std::int64_t full = std::max(first, known / 4) - first;
        SequenceView view{.known = known, .computed = computed, .blocks = (computed + 3) / 4, .turn = turn};
        view.blocks_ahead = std::span(chain).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(full));
        return view;
    }
};

using BlockKey = std::pair<std::uint64_t, std::uint64_t>;
BlockKey key(const BlockHash& hash) { return {hash.low, hash.high}; }

using Pick = std::function<std::int64_t(std::int64_t from, std::int64_t to)>;

std::vector<Simulated> random_sequences(const Pick& pick) {
    std::vector<Simulated> sequences;
    const std::int64_t count = pick(1, 20);
    for (std::int64_t i = 0; i < count; ++i) {
        Simulated one{.chain = chain_of(static_cast<std::uint64_t>(pick(1, 3)), 12), .known = pick(1, 40)};
        // Two in three are the same up to a block, then differ.
        for (std::size_t k = static_cast<std::size_t>(pick(0, 17)); k < one.chain.size(); ++k) {
            one.chain[k].low = 100 + static_cast<std::uint64_t>(i);
        }
        one.turn = static_cast<std::uint64_t>(i);
        sequences.push_back(one);
    }
    return sequences;
}

// What a waiting sequence gets from the index of computed blocks, and its view then.
SequenceView view_with_hits(Simulated& one, const std::set<BlockKey>& index) {
    one.computed = 0;
    while (one.computed + 4 < one.known && index.contains(key(one.chain[static_cast<std::size_t>(one.computed / 4)]))) one.computed += 4;
    SequenceView view = one.view();
    view.next_is_reusable = one.computed + 4 < one.known;
    return view;
}

// Pins: a request is held back only for a block that this step writes, so each step of waiting brings it one block closer. All requests
// end, and no block is computed by two sequences unless both were already running.
TEST(PlanStep, LetsEverybodyFinishAndComputesSharedBlocksOnce) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto pick = [&](std::int64_t from, std::int64_t to) {
        return from + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(to - from + 1));
    };
    for (int round = 0; round < 300; ++round) {
        const StepLimits with{.rows = pick(1, 60), .sample_rows = 64, .sequences = pick(1, 8), .block_size = 4};
        std::vector<Simulated> waiting = random_sequences(pick);
        std::vector<Simulated> running;
        std::set<BlockKey> index;
        StepPlan plan;
        int steps = 0;
        while (!waiting.empty() || !running.empty()) {
            ASSERT_LT(++steps, 3000) << "a request starves";
            std::vector<SequenceView> running_views;
            std::vector<SequenceView> waiting_views;
            for (const Simulated& one : running) running_views.push_back(one.view());
            for (Simulated& one : waiting) waiting_views.push_back(view_with_hits(one, index));
            plan_step(running_views, waiting_views, 1000, with, plan);
            ASSERT_FALSE(plan.empty());

            std::set<BlockKey> written;
            std::map<BlockKey, std::size_t> avoidable;  // writes of blocks that the index could have given
            const auto advance = [&](Simulated& one, std::int64_t rows) {
                const std::int64_t from = one.computed / 4;
                one.computed += rows;
                for (std::int64_t k = from; k < one.computed / 4; ++k) {
                    const auto block = key(one.chain[static_cast<std::size_t>(k)]);
                    written.insert(block);
                    if (4 * k + 4 < one.known) ++avoidable[block];
                }
            };
            std::size_t last = 0;
            std::set<std::size_t> started;
            for (const PlannedRows& rows : plan.starting) {
                started.insert(rows.index);
                last = rows.index;
            }
            for (const PlannedRows& rows : plan.running) advance(running[rows.index], rows.rows);
            for (const PlannedRows& rows : plan.starting) advance(waiting[rows.index], rows.rows);
            for (std::size_t i = 0; i < last; ++i) {
                if (started.contains(i)) continue;
                ASSERT_TRUE(waiting_views[i].next_is_reusable);
                ASSERT_TRUE(written.contains(key(waiting_views[i].blocks_ahead.front()))) << "held back without a reason";
            }
            for (const PlannedRows& rows : plan.starting) {
                const SequenceView& was = waiting_views[rows.index];
                if (!was.next_is_reusable || waiting[rows.index].computed < was.computed + 4) continue;
                ASSERT_EQ(avoidable.at(key(was.blocks_ahead.front())), 1U) << "a block was computed twice";
            }
            index.insert(written.begin(), written.end());
            std::vector<Simulated> left;
            for (std::size_t i = 0; i < waiting.size(); ++i) (started.contains(i) ? running : left).push_back(waiting[i]);
            waiting = std::move(left);
            std::erase_if(running, [](const Simulated& one) { return one.computed == one.known; });
        }
    }
}

}  // namespace
}  // namespace lorry::engine
