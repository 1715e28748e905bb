// When a guess of the next token pays: step_cost.h and draft_limits.h with made-up times.
#include "engine/step_cost.h"

#include <gtest/gtest.h>

#include "engine/draft_limits.h"
#include "tests/support/test_grammar.h"

namespace lorry::engine {
namespace {

using std::chrono::duration_cast;
using Duration = std::chrono::steady_clock::duration;

class MadeUpClock {
public:
    void step(StepCost& cost, std::int64_t rows, double seconds, bool decodes = true) {
        cost.launched({.rows = rows, .decodes = decodes, .begun = now_});
        now_ += duration_cast<Duration>(std::chrono::duration<double>(seconds));
        cost.read(now_);
        now_ += std::chrono::seconds(5);  // nothing runs
    }
    // Queued: launched before the one before it is read.
    void steps_in_a_row(StepCost& cost, std::int64_t rows, double seconds, int count) {
        cost.launched({.rows = rows, .decodes = true, .begun = now_});
        for (int i = 0; i < count; ++i) {
            cost.launched({.rows = rows, .decodes = true, .begun = now_});
            now_ += duration_cast<Duration>(std::chrono::duration<double>(seconds));
            cost.read(now_);
        }
        now_ += duration_cast<Duration>(std::chrono::duration<double>(seconds));
        cost.read(now_);
    }

private:
    StepCost::Time now_;
};

TEST(StepCost, IsTheShareOfAStepThatItsRowsTake) {
    StepCost cost;
    MadeUpClock clock;
    for (int i = 0; i < 40; ++i) {
        for (const std::int64_t rows : {1, 3, 8, 40}) clock.step(cost, rows, 0.010 + 0.001 * static_cast<double>(rows));
    }
    EXPECT_NEAR(cost.chance_least(1), 1.0 / 11.0, 0.005);
    EXPECT_NEAR(cost.chance_least(10), 10.0 / 20.0, 0.01);
    EXPECT_NEAR(cost.chance_least(40), 40.0 / 50.0, 0.01);
}

TEST(StepCost, IsNothingWhereRowsCostNothingAndAllWhereOnlyRowsCost) {
    StepCost free;
    StepCost dear;
    MadeUpClock clock;
    for (const std::int64_t rows : {1, 2, 30}) {
        clock.step(free, rows, 0.010);
        clock.step(dear, rows, 0.001 * static_cast<double>(rows));
    }
    EXPECT_NEAR(free.chance_least(8), 0.0, 1e-6);
    EXPECT_NEAR(dear.chance_least(8), 1.0, 1e-6);
}

TEST(StepCost, AssumesAPriceUntilStepsDiffer) {
    StepCost cost;
    EXPECT_NEAR(cost.chance_least(16), 0.5, 1e-6);
    MadeUpClock clock;
    for (int i = 0; i < 10; ++i) clock.step(cost, 16, 0.010);
    EXPECT_NEAR(cost.chance_least(16), 0.5, 1e-6);
}

// Drafts under a grammar were made where their masks took longer than the tokens that they saved.
TEST(StepCost, CountsWhatAGuessTakesBesidesItsRow) {
    StepCost cost;
    MadeUpClock clock;
    for (int i = 0; i < 40; ++i) {
        for (const std::int64_t rows : {1, 3, 8, 40}) clock.step(cost, rows, 0.010 + 0.001 * static_cast<double>(rows));
    }
    EXPECT_NEAR(cost.chance_least(1, 0.001), 2.0 / 11.0, 0.005);
    EXPECT_NEAR(cost.chance_least(10, 0.0005), 15.0 / 20.0, 0.01);
    EXPECT_GT(cost.chance_least(1, 0.012), 1.0) << "no guess pays";
    StepCost unknown;
    EXPECT_NEAR(unknown.chance_least(16, 1.0), 0.5, 1e-6);
    clock.step(unknown, 16, 0.010);
    EXPECT_NEAR(unknown.chance_least(16, 0.005 / 16.0), 1.0, 0.01) << "half of that step is its fixed part, as far as is known";
}

TEST(StepCost, DoesNotCountPromptsWaitsAndStepsThatOthersHeldUp) {
    StepCost cost;
    MadeUpClock clock;
    for (int i = 0; i < 40; ++i) {
        clock.step(cost, 1, 0.011);
        clock.step(cost, 400, 0.005, false);
        clock.steps_in_a_row(cost, 10, 0.020, 4);
        if (i % 10 == 0) clock.step(cost, 1, 3.0);
    }
    EXPECT_NEAR(cost.chance_least(10), 0.5, 0.05);
}

Sequence sequence_with(SharedDrawing drawing) {
    return {Request{.id = 1, .prompt = {1}, .drawing = std::move(drawing), .max_tokens = 9}, 0, {}, tests::gpt2_tokenizer()};
}

// Pins: what masks take was measured, and left out of the price of a guess.
TEST(DraftLimits, CountTheMaskThatAGuessTakes) {
    StepCost cost;
    MadeUpClock clock;
    for (int i = 0; i < 40; ++i) {
        for (const std::int64_t rows : {1, 3, 8, 40}) clock.step(cost, rows, 0.010 + 0.001 * static_cast<double>(rows));
    }
    const DraftRoom room{.drafts_max = 5, .sample_rows = 100, .sequences = 10};
    Sequence sequence = sequence_with(default_drawing());
    EXPECT_NEAR(draft_limits(sequence, room, cost).chance_least, 10.0 / 20.0, 0.01);
    sequence.guess_seconds = 0.0005;
    EXPECT_NEAR(draft_limits(sequence, room, cost).chance_least, 15.0 / 20.0, 0.01);
    sequence.guess_seconds = 0.002;
    EXPECT_GT(draft_limits(sequence, room, cost).chance_least, 1.0) << "no guess pays";
    DraftRoom given = room;
    given.chance_least = 0.25;
    EXPECT_EQ(draft_limits(sequence, given, cost).chance_least, 0.25);
}

TEST(DraftLimits, ShareTheRowsOfAStepAndTheTimeForItsMasks) {
    const StepCost cost;
    DraftRoom room{.drafts_max = 5, .sample_rows = 40, .sequences = 10, .mask_patience = MaskPatience{.seconds_least = 0.01}};
    Sequence plain = sequence_with(default_drawing());
    Sequence held = sequence_with(shared({.end_tokens = {tests::grammar_end}, .grammar = tests::grammar_of("[a-z]*")}));
    plain.mask_seconds = held.mask_seconds = 0.0005;
    EXPECT_EQ(draft_limits(plain, room, cost).count, 5);
    EXPECT_EQ(draft_limits(held, room, cost).count, 2) << "ten sequences have 20 masks in the time";
    held.mask_seconds = 0.0;
    EXPECT_EQ(draft_limits(held, room, cost).count, 3) << "of 30 spare rows";
    room.sample_rows = 12;
    EXPECT_EQ(draft_limits(plain, room, cost).count, 2);
    EXPECT_EQ(draft_limits(held, room, cost).count, 0);
    room.sample_rows = 5;
    EXPECT_EQ(draft_limits(plain, room, cost).count, 0);
}

}  // namespace
}  // namespace lorry::engine
