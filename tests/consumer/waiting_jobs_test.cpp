// Jobs that wait for room, for their adapter or for their source, through the whole pipeline: who goes first, and what ends them. Nothing
// is timed: the order of the ends shows who waited for whom.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <set>

#include "tests/support/pipeline_rig.h"

namespace lorry::consumer {
namespace {

using tests::ending;
using tests::job;

// Large jobs of 8 x 25 tokens in a window of 400 tokens: one runs at a time.
std::string large(const std::string& id) { return job(id, R"(,"max_tokens":20,"n":8,"ignore_eos":true)"); }

struct WaitingRig : tests::PipelineRig {
    WaitingRig() {
        engine_options.sequences_max = 16;
        options.in_flight.tokens = 400;
    }
};

// Pins: each large job that waited took a place among those that may start, although only one of them had room.
TEST(WaitingJobs, ASourceIsAskedOnlyForJobsThatHaveTheirRoom) {
    WaitingRig rig;
    std::set<std::int64_t> asked;
    std::set<std::int64_t> ended;
    std::map<std::int64_t, int> times;
    std::size_t most = 0;
    rig.source.lets_go_on = [&](std::int64_t offset) {
        asked.insert(offset);
        most =
            std::max(most, asked.size() - static_cast<std::size_t>(std::ranges::count_if(asked, [&](auto one) { return times[one] > 2; })));
        return ++times[offset] > 2;
    };
    for (int i = 0; i < 8; ++i) rig.source.add(large("large-" + std::to_string(i)));
    rig.run();
    EXPECT_EQ(rig.sink.committed.size(), 8U);
    for (const auto& [offset, outcome] : rig.sink.committed) EXPECT_EQ(ending(std::get<schema::Completion>(outcome.record)), "200");
    EXPECT_EQ(asked.size(), 8U);
    EXPECT_EQ(most, 1U) << "one has room at a time";
}

// Pins: the commit that lets a job start came only after the whole interval.
TEST(WaitingJobs, ACommitThatOneNeedsComesAtOnceWhileNothingRuns) {
    WaitingRig rig;
    rig.options.commit_interval = std::chrono::hours(1);
    constexpr int asked_max = 5'000;  // once in a millisecond
    std::optional<int> commits_before;
    int asked = 0;
    rig.source.lets_go_on = [&](std::int64_t) {
        const int commits = rig.sink.commits;
        if (!commits_before) commits_before = commits;
        return commits > *commits_before || ++asked >= asked_max;
    };
    rig.source.add(job("job"));
    rig.source.add(job("parked", "", "late"));
    rig.run();
    EXPECT_EQ(rig.sink.committed.size(), 2U);
    EXPECT_LT(asked, asked_max);
}

// Pins: a large job that needed the room of two others was passed by smaller large ones for as long as they came.
TEST(WaitingJobs, LargeJobsBeginInTheOrderInWhichTheyCame) {
    WaitingRig rig;
    std::vector<std::string> ends;
    rig.observer.at_finish = [&](const JobObservation& one) { ends.push_back(one.run.job_id); };
    const auto medium = [](int i) { return job("medium-" + std::to_string(i), R"(,"max_tokens":20,"n":3,"ignore_eos":true)"); };
    for (int i = 0; i < 3; ++i) rig.source.add(medium(i));
    rig.source.add(large("large"));
    for (int i = 3; i < 40; ++i) rig.source.add(medium(i));
    rig.run();
    ASSERT_EQ(ends.size(), 41U);
    EXPECT_LE(std::ranges::find(ends, "large") - ends.begin(), 5);
}

// Pins: a cancelled job that waited ended only when its turn came, and one for an unknown adapter as model_not_found.
TEST(WaitingJobs, ACancelOrADeadlineEndsThemWhileTheyWait) {
    WaitingRig rig;
    const tests::NeverSure directory;
    rig.adapters = &directory;
    const auto soon = std::chrono::system_clock::now() + std::chrono::milliseconds(300);
    const std::string deadline = std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(soon.time_since_epoch()).count());
    std::promise<void> both_ended;
    rig.source.add(large("runs"));
    rig.source.add(large("cancelled"));
    rig.source.add(job("nameless", "", "ghost"), {{"deadline", deadline}});
    int waiting_ended = 0;
    rig.observer.at_finish = [&](const JobObservation& one) {
        if (one.run.job_id != "runs" && ++waiting_ended == 2) both_ended.set_value();
    };
    bool first = true;
    rig.observer.at_step = [&](const engine::EngineStats&) {
        if (!std::exchange(first, false)) return;
        rig.cancels.cancel("cancelled");
        EXPECT_EQ(both_ended.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready) << "while the first one ran";
    };
    rig.run();
    EXPECT_EQ(ending(rig.sink.completion(0)), "200");
    EXPECT_EQ(ending(rig.sink.completion(1)), "batch_cancelled");
    EXPECT_EQ(rig.sink.completion(1).state, schema::JobState::cancelled);
    EXPECT_EQ(ending(rig.sink.completion(2)), "batch_expired");
}

// Pins: while others ran, 64 small jobs started in two intervals at most, however fast they were.
TEST(WaitingJobs, CommitsComeAtOnceWhileStartsWaitForThem) {
    WaitingRig rig;
    rig.options.commit_interval = std::chrono::hours(1);
    rig.source.held = JobSource::HeldBack::jobs;
    rig.source.add(large("runs"));
    bool first = true;
    rig.observer.at_step = [&](const engine::EngineStats& stats) {
        if (stats.running == 0 || !std::exchange(first, false)) return;
        const int before = rig.sink.commits;
        const auto deadline = Clock::now() + std::chrono::seconds(60);
        while (rig.sink.commits < before + 2 && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_GE(rig.sink.commits, before + 2) << "while the job ran";
    };
    rig.run();
    EXPECT_EQ(ending(rig.sink.completion(0)), "200");
}

// Pins: what came with a record beside its value was not weighed.
TEST(WaitingJobs, HeadersCountAsMuchAsText) {
    WaitingRig rig;
    rig.options.in_flight.bytes = 2 << 20;
    std::int64_t most = 0;
    rig.observer.at_gauges = [&](const PipelineGauges& gauges) { most = std::max(most, gauges.bytes); };
    for (int i = 0; i < 16; ++i) rig.source.add(job("job-" + std::to_string(i)), {{"x", std::string(100'000, 'x')}});
    rig.source.add(job("heavy"), {{"x", std::string(2 << 20, 'x')}});
    rig.run();
    EXPECT_EQ(rig.sink.committed.size(), 17U);
    EXPECT_EQ(ending(rig.sink.completion(0)), "200");
    EXPECT_EQ(ending(rig.sink.completion(16)), "413 payload_too_large");
    EXPECT_GT(most, 400'000);
}

}  // namespace
}  // namespace lorry::consumer
