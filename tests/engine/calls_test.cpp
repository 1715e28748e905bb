// Calls beside other jobs, over the hash model: the steps are the clock. However many jobs wait or run, a call starts in the next step and
// gets half of its rows at least.
#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "tests/support/hash_engine.h"

namespace lorry::engine {
namespace {

struct CallsRig : tests::CheckedEngine {
    explicit CallsRig(const EngineOptions& engine_options, std::int64_t blocks = 4'000) : CheckedEngine(1, blocks, 2'000, engine_options) {}
    void submit(RequestId id, std::int64_t prompt_tokens, std::int64_t max_tokens, bool is_call = false, bool large = false) {
        Request request = tests::request_of(id, tests::prompt_of(prompt_tokens, static_cast<std::int32_t>(id)), max_tokens);
        request.is_call = is_call;
        request.large = large;
        CheckedEngine::submit(std::move(request));
    }
    // The steps from now on until the request ended.
    std::int64_t steps_until(RequestId id) {
        const std::int64_t begin = steps;
        while (!ended.contains(id) && engine->has_work()) step();
        return steps - begin;
    }
};

// Pins: all places were taken by jobs that ran for long, and the call waited for one of them to end.
TEST(Calls, OneGetsAPlaceAtOnceThoughJobsHaveThemAll) {
    CallsRig rig({.sequences_max = 4, .step_rows_max = 64});
    for (RequestId id = 1; id <= 12; ++id) rig.submit(id, 10, 300);
    for (int i = 0; i < 20; ++i) rig.step();
    rig.submit(100, 10, 5, true);
    EXPECT_LE(rig.steps_until(100), 7) << "one step gives the place up, the next one reads the prompt";
    rig.run_to_end();
}

// Pins: prompts of jobs that ran took all rows of each step.
TEST(Calls, OneGetsHalfOfTheRowsThoughLongPromptsAreRead) {
    CallsRig rig({.sequences_max = 8, .step_rows_max = 32});
    for (RequestId id = 1; id <= 6; ++id) rig.submit(id, 1'500, 4);
    for (int i = 0; i < 10; ++i) rig.step();
    rig.submit(100, 64, 3, true);
    EXPECT_LE(rig.steps_until(100), 8) << "64 rows at 16 a step, and two more tokens";
    rig.run_to_end();
}

// Pins: calls that came later passed jobs by without end.
TEST(Calls, JobsGoOnBesideThem) {
    CallsRig rig({.sequences_max = 4, .step_rows_max = 32});
    for (RequestId call = 1'000; call < 1'008; ++call) rig.submit(call, 8, 40, true);
    rig.submit(1, 64, 10);
    for (RequestId call = 1'008; call < 1'040; ++call) rig.submit(call, 8, 40, true);
    EXPECT_LE(rig.steps_until(1), 150) << "40 calls take 400 steps in four places";
    rig.run_to_end();
}

// Pins: large calls took all places, and small ones waited.
TEST(Calls, LargeOnesYieldToOthers) {
    CallsRig rig({.sequences_max = 4, .step_rows_max = 32});
    for (RequestId id = 1; id <= 8; ++id) rig.submit(id, 8, 200, true, true);
    for (int i = 0; i < 10; ++i) rig.step();
    rig.submit(100, 8, 5, true);
    EXPECT_LE(rig.steps_until(100), 8);
    rig.run_to_end();
}

}  // namespace
}  // namespace lorry::engine
