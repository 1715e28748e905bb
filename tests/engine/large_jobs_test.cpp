// A large job beside small ones, over the hash model: the steps are the clock. Small jobs get half of the rows, places and blocks at least,
// and the large job gets its answers all the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/engine.h"
#include "tests/support/hash_engine.h"

namespace lorry::engine {
namespace {

constexpr RequestId small_from = 10'000;  // ids of small jobs

std::vector<TokenId> prompt_of_job(std::int64_t tokens, RequestId seed) {
    std::vector<TokenId> prompt(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < prompt.size(); ++i) {
        prompt[i] = static_cast<TokenId>((seed * 31 + i * i * 7 + i) % static_cast<std::uint64_t>(tests::hash_vocabulary));
    }
    return prompt;
}

struct LargeJobsRig : tests::CheckedEngine {
    LargeJobsRig(const EngineOptions& engine_options, std::int64_t blocks, std::int64_t steps_queued)
        : CheckedEngine(steps_queued, blocks, 2'000, engine_options) {}
    void submit(RequestId id, std::int64_t prompt_tokens, std::int64_t max_tokens, std::optional<Fork> fork = std::nullopt) {
        Request request{.id = id, .prompt = prompt_of_job(prompt_tokens, fork ? fork->leader : id)};
        request.max_tokens = max_tokens;
        request.large = id < small_from;
        request.fork = fork;
        if (request.fork) request.fork->tokens = prompt_tokens - 1;
        CheckedEngine::submit(std::move(request));
    }
    // Runs to the end. Returns the steps from now on until the last small job ended.
    std::int64_t steps_until_small_end() {
        const std::int64_t begin = steps;
        run_to_end();
        return last_end(true) - begin;
    }
    // The step in which the last small or large job ended.
    std::int64_t last_end(bool small) const {
        std::int64_t last = 0;
        for (const auto& [id, step] : ended) last = (id >= small_from) == small ? std::max(last, step) : last;
        return last;
    }
};

class LargeJobs : public testing::TestWithParam<std::int64_t> {};  // parameter: how many steps may be queued

// 200 sequences for 8 places keep all of them for 2,500 steps. Small jobs that come later find half of the places.
TEST_P(LargeJobs, GiveHalfOfThePlacesToOthers) {
    LargeJobsRig rig({.sequences_max = 8, .step_rows_max = 64}, 500, GetParam());
    for (RequestId id = 1; id <= 200; ++id) rig.submit(id, 5, 100);
    for (int i = 0; i < 20; ++i) rig.step();
    EXPECT_EQ(rig.engine->stats().running, 8) << "alone, it has all places";
    for (RequestId id = 0; id < 40; ++id) rig.submit(small_from + id, 5, 10);
    EXPECT_LE(rig.steps_until_small_end(), 40 / 4 * (10 + 3) + 10) << "four at a time, a few steps between them";
    EXPECT_EQ(rig.engine->stats().preemptions, 4U) << "once, and not for each small job";
}

TEST_P(LargeJobs, GiveHalfOfTheRowsToOthers) {
    LargeJobsRig rig({.sequences_max = 64, .step_rows_max = 64}, 2'000, GetParam());
    for (RequestId id = 1; id <= 4; ++id) rig.submit(id, 1'000, 1);
    rig.step();
    for (RequestId id = 0; id < 8; ++id) rig.submit(small_from + id, 60, 2);
    EXPECT_LE(rig.steps_until_small_end(), 8 * 60 / 32 + 4) << "half of 64 rows a step";
    EXPECT_LE(rig.steps, (4 * 1'000 + 8 * 62) / 64 + 8) << "hardly a row stays empty";
}

// Pins: as many large jobs as their share of the places permits waited for rows, and nobody else was offered those places.
TEST_P(LargeJobs, LeaveToOthersThePlacesForWhichTheyHaveNoRows) {
    LargeJobsRig rig({.sequences_max = 8, .step_rows_max = 32}, 2'000, GetParam());
    for (RequestId id = 1; id <= 8; ++id) rig.submit(id, 1'000, 1);
    rig.step();
    for (RequestId id = 0; id < 42; ++id) rig.submit(small_from + id, 5, 20);
    EXPECT_LE(rig.steps_until_small_end(), 42 / 6 * (20 + 3) + 10) << "six or seven at a time";
}

// The scored rows of a prompt need logits, of which a step has few.
TEST_P(LargeJobs, LeaveRowsWithLogitsToOthers) {
    LargeJobsRig rig({.sequences_max = 8, .step_rows_max = 512}, 2'000, GetParam());
    Request scored{.id = 1, .prompt = prompt_of_job(1'500, 1), .max_tokens = 1, .large = true, .score_begin = 0};
    rig.expected[1] = tests::hash_tokens(scored.prompt, 1);
    rig.engine->submit(scored);
    rig.step();
    for (RequestId id = 0; id < 4; ++id) rig.submit(small_from + id, 20, 4);
    EXPECT_LE(rig.steps_until_small_end(), 8);
    EXPECT_GE(rig.steps, 1'500 / 64) << "it went on for longer";
}

// Pins: beside one other sequence, half of the large jobs' sequences had no turn, though nobody else wanted it.
TEST_P(LargeJobs, TakeTheRowsWithLogitsThatOthersLeave) {
    LargeJobsRig rig({.sequences_max = 64, .step_rows_max = 512}, 2'000, GetParam());
    rig.submit(small_from, 5, 200);
    for (RequestId id = 1; id <= 60; ++id) rig.submit(id, 5, 50);
    rig.run_to_end();
    EXPECT_LE(rig.last_end(false), 50 + 10);
}

// The same where a step has no more rows than places.
TEST_P(LargeJobs, AllDecodeBesideOneOther) {
    LargeJobsRig rig({.sequences_max = 64, .step_rows_max = 64}, 2'000, GetParam());
    for (RequestId id = 1; id <= 60; ++id) rig.submit(id, 5, 100);
    for (int i = 0; i < 20; ++i) rig.step();
    EXPECT_EQ(rig.engine->stats().running, 60);
    rig.submit(small_from, 5, 200);
    rig.run_to_end();
    EXPECT_LE(rig.last_end(false), 100 + 20);
}

// Pins: a small job that waited for a large one's blocks halved the large one's rows.
TEST_P(LargeJobs, TakeAllRowsWhileOthersCannotStart) {
    LargeJobsRig rig({.sequences_max = 8, .step_rows_max = 32}, 260, GetParam());
    rig.submit(1, 1'000, 1);
    for (int i = 0; i < 22; ++i) rig.step();
    rig.submit(small_from, 400, 1);
    rig.run_to_end();
    EXPECT_LE(rig.ended.at(1), 1'000 / 32 + 4);
}

TEST_P(LargeJobs, GiveHalfOfTheBlocksToOthers) {
    LargeJobsRig rig({.sequences_max = 64, .step_rows_max = 512}, 200, GetParam());
    for (RequestId id = 1; id <= 32; ++id) rig.submit(id, 40, 200);
    for (int i = 0; i < 60; ++i) rig.step();
    EXPECT_GE(rig.engine->stats().kv_blocks_used, 150) << "alone, it fills the cache";
    for (RequestId id = 0; id < 20; ++id) rig.submit(small_from + id, 30, 10);
    EXPECT_LE(rig.steps_until_small_end(), 20 / 5 * (10 + 3) + 20) << "half of the cache holds nine of the small ones";
}

// Pins: the copied blocks of 60 forks that waited stayed held while running sequences were preempted for want of blocks.
TEST_P(LargeJobs, ForksThatWaitGiveTheirBlocksToThoseThatRun) {
    LargeJobsRig rig({.sequences_max = 4, .step_rows_max = 512}, 110, GetParam());
    rig.submit(1, 30, 60);
    for (RequestId id = 2; id <= 60; ++id) rig.submit(id, 30, 60, Fork{.leader = 1});
    rig.submit(small_from, 40, 60);
    rig.submit(small_from + 1, 40, 60);
    rig.run_to_end();
    EXPECT_LE(rig.last_end(true), 60 + 3) << "they were never held up";
    EXPECT_EQ(rig.engine->stats().preemptions, 0U);
}

INSTANTIATE_TEST_SUITE_P(StepsQueued, LargeJobs, testing::Values(1, 2));

}  // namespace
}  // namespace lorry::engine
