// What jobs that wait may hold, who is next among them, and what remains of them when their partition is lost. Through the whole pipeline.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <set>

#include "tests/support/pipeline_rig.h"

namespace lorry::consumer {
namespace {

using tests::job;

constexpr int turns = 20;  // of the intake thread: enough to show that nothing more is taken

// A pipeline that is stopped by a test's at_gauges.
struct LimitsRig : tests::PipelineRig {
    LimitsRig() {
        adapters = &directory;
        options.drain_timeout = std::chrono::milliseconds(0);
        source.stay_open();
    }
    // Runs until the number of parked jobs has not changed for some turns, and returns it.
    std::size_t parked_at_last() {
        std::size_t parked = 0;
        int unchanged = 0;
        observer.at_gauges = [&](const PipelineGauges& gauges) {
            unchanged = gauges.parked > 0 && gauges.parked == parked ? unchanged + 1 : 0;
            if (unchanged == 0) directory.asked = 0;
            asked_in_last_turns = directory.asked;
            parked = gauges.parked;
            if (unchanged == turns) pipeline->request_stop();
        };
        run();
        return parked;
    }
    tests::NeverSure directory;
    int asked_in_last_turns = 0;
};

std::vector<schema::Header> heavy() { return {{"x", std::string(100'000, 'x')}}; }

TEST(WaitingLimits, EightWindowsOfJobsMayWaitAndTheSourceKnowsEach) {
    LimitsRig rig;
    rig.options.in_flight_max = 4;
    std::set<std::int64_t> waited;
    rig.source.sees_wait = [&](std::int64_t offset) { waited.insert(offset); };
    for (int i = 0; i < 100; ++i) rig.source.add(job("job-" + std::to_string(i), "", "ghost"));
    EXPECT_EQ(rig.parked_at_last(), 32U);
    EXPECT_EQ(waited.size(), 32U);
}

// A worker's own work must not wait for names.
TEST(WaitingLimits, NamesAreLookedUpAFewAtATime) {
    LimitsRig rig;
    for (int i = 0; i < 1'500; ++i) rig.source.add(job("job-" + std::to_string(i), "", "ghost"));
    EXPECT_EQ(rig.parked_at_last(), 1'500U);
    EXPECT_LE(rig.asked_in_last_turns / turns, 512);
}

TEST(WaitingLimits, JobsThatWaitTakeHalfOfTheBytes) {
    LimitsRig rig;
    rig.options.in_flight_max = 4;
    rig.options.in_flight.bytes = 2 << 20;
    for (int i = 0; i < 30; ++i) rig.source.add(job("job-" + std::to_string(i), "", "ghost"), heavy());
    EXPECT_EQ(rig.parked_at_last(), 12U) << "the third four go beyond a MiB";
}

// Pins: jobs that waited counted as running, so that results of others were committed only after the whole interval.
TEST(WaitingLimits, ResultsAreCommittedAtOnceWhileAllOtherJobsWait) {
    LimitsRig rig;
    rig.options.commit_interval = std::chrono::hours(1);
    rig.source.add(job("ends"));
    rig.source.add(job("waits", "", "ghost"));
    rig.observer.at_step = [first = true](const engine::EngineStats&) mutable {
        // The commit that was due before the job ran is over.
        if (std::exchange(first, false)) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    };
    bool is_committed = false;
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    rig.observer.at_gauges = [&](const PipelineGauges& gauges) {
        is_committed = gauges.parked == 1 && gauges.in_flight == 1;
        if (is_committed || Clock::now() > deadline) rig.pipeline->request_stop();
    };
    rig.run();
    EXPECT_TRUE(is_committed);
}

// Their records are in memory until their ends are committed. While they exceed the bytes, nothing more is taken.
TEST(WaitingLimits, RefusedJobsTakeBytesUntilTheyAreCommitted) {
    tests::PipelineRig rig;
    rig.options.in_flight.bytes = 2 << 20;
    for (int i = 0; i < 300; ++i) rig.source.add(job("refused-" + std::to_string(i), R"(,"best_friend":true)"), heavy());
    std::promise<void> seen;
    rig.sink.before_commit = [&, first = true]() mutable {
        if (std::exchange(first, false)) seen.get_future().wait();
    };
    rig.observer.at_gauges = [&, first_poll = std::size_t{0}, turn = 0](const PipelineGauges& gauges) mutable {
        if (turn == turns) return;  // from here on commits make room
        if (turn == 0) first_poll = gauges.in_flight;
        EXPECT_GT(gauges.bytes, gauges.bytes_max);
        EXPECT_EQ(gauges.in_flight, first_poll);
        EXPECT_LT(first_poll, 300U);
        if (++turn == turns) seen.set_value();
    };
    rig.run();
    EXPECT_EQ(rig.sink.committed.size(), 300U);
}

// Small jobs that wait would otherwise take each room that others leave.
TEST(WaitingLimits, ALargeJobIsNotPassedByAllSmallOnesThatCameLater) {
    tests::PipelineRig rig;
    rig.engine_options.sequences_max = 16;
    rig.options.in_flight.tokens = 400;
    std::vector<std::string> ends;
    rig.observer.at_finish = [&](const JobObservation& one) { ends.push_back(one.run.job_id); };
    const auto add_small = [&](int count) {
        for (int i = 0; i < count; ++i) rig.source.add(job("small", R"(,"max_tokens":20,"ignore_eos":true)"));
    };
    add_small(16);
    rig.source.add(job("large", R"(,"max_tokens":20,"n":8,"ignore_eos":true)"));
    add_small(150);
    rig.run();
    ASSERT_EQ(ends.size(), 167U);
    EXPECT_LE(std::ranges::find(ends, "large") - ends.begin(), 50);
}

// Commits make room before their interval has passed, though a job still runs.
TEST(WaitingLimits, AWindowOfEndedJobsIsCommittedEarly) {
    tests::PipelineRig rig;
    rig.options.in_flight_max = 8;
    rig.options.commit_interval = std::chrono::hours(1);
    std::vector<std::string> ends;
    rig.observer.at_finish = [&](const JobObservation& one) { ends.push_back(one.run.job_id); };
    rig.observer.at_step = [](const engine::EngineStats&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
    rig.source.add(job("long", R"(,"max_tokens":190,"ignore_eos":true)"));
    for (int i = 0; i < 40; ++i) rig.source.add(job("short", R"(,"max_tokens":1)"));
    rig.run();
    ASSERT_EQ(ends.size(), 41U);
    EXPECT_GT(std::ranges::find(ends, "long") - ends.begin(), 8);
}

TEST(WaitingLimits, NoJobOfALostPartitionWaitsAnyLonger) {
    LimitsRig rig;
    for (const char* model : {"ghost", "base"}) rig.source.add(job(model, "", model));
    rig.source.lets_go_on = [&](std::int64_t) { return false; };
    bool is_lost = false;
    rig.source.after(2, [&](RevocationHandler& handler) {
        handler.lost({tests::partition});
        rig.source.lets_go_on = [](std::int64_t offset) {
            ADD_FAILURE() << "job " << offset << " is gone";
            return true;
        };
        is_lost = true;
    });
    std::size_t most = 0;
    rig.observer.at_gauges = [&, turn = 0](const PipelineGauges& gauges) mutable {
        most = std::max(most, gauges.parked);
        if (!is_lost || ++turn < turns) return;
        EXPECT_EQ(gauges.parked, 0U);
        EXPECT_EQ(gauges.in_flight, 0U);
        rig.pipeline->request_stop();
    };
    rig.run();
    EXPECT_EQ(most, 1U);
}

TEST(WaitingLimits, NothingMoreIsComputedOfALostPartition) {
    LimitsRig rig;
    rig.source.add(job("long", R"(,"max_tokens":190,"ignore_eos":true)"));
    std::promise<void> started;
    std::promise<void> lost;
    rig.source.after(1, [&](RevocationHandler& handler) {
        started.get_future().wait();
        handler.lost({tests::partition});
        lost.set_value();
    });
    int steps = 0;
    rig.observer.at_step = [&](const engine::EngineStats&) {
        if (++steps > 1) return;
        started.set_value();
        lost.get_future().wait();
    };
    rig.observer.at_gauges = [&, turn = 0](const PipelineGauges& gauges) mutable {
        turn = gauges.in_flight == 0 ? turn + 1 : 0;
        if (turn == turns) rig.pipeline->request_stop();
    };
    rig.run();
    EXPECT_LE(steps, 2);
}

}  // namespace
}  // namespace lorry::consumer
