// Calls in the pipeline, beside jobs that fill it: they have places and room of their own, and their results are committed at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "consumer/publisher.h"
#include "tests/support/pipeline_rig.h"

namespace lorry::consumer {
namespace {

using tests::ending;
using tests::job;

struct CallsRig : tests::PipelineRig {
    CallsRig() {
        engine_options.sequences_max = 4;
        options.in_flight_max = 4;
        options.calls_in_flight_max = 4;
    }
    std::string ending_at(std::int64_t offset) const { return ending(sink.completion(offset)); }
    std::vector<std::string> ends;  // of the engine, in their order
    void note_ends() {
        observer.at_finish = [this](const JobObservation& one) { ends.push_back(one.run.job_id); };
    }
    std::ptrdiff_t place_of(const std::string& id) const { return std::ranges::find(ends, id) - ends.begin(); }
};

std::string long_job(int number) { return job("job-" + std::to_string(number), R"(,"max_tokens":100,"ignore_eos":true)"); }

// Pins: the window was full of jobs, so that the call was not even read.
TEST(CallsInThePipeline, OneIsReadAndRunThoughJobsFillTheWindow) {
    CallsRig rig;
    rig.note_ends();
    for (int i = 0; i < 40; ++i) rig.source.add(long_job(i));
    rig.source.after(4, [&](RevocationHandler&) { rig.source.add_call(job("call", R"(,"max_tokens":3)")); });
    rig.run();
    EXPECT_EQ(rig.sink.committed.size(), 41U);
    EXPECT_LE(rig.place_of("call"), 4) << "only jobs that were running before end before it";
}

// Pins: jobs took all tokens of the window, and the call was parked until some had ended.
TEST(CallsInThePipeline, AnEighthOfTheTokensIsKeptForThem) {
    CallsRig rig;
    rig.options.in_flight_max = 100;
    rig.options.in_flight.tokens = 1'600;  // 13 jobs of about 105, and 200 for calls
    rig.note_ends();
    for (int i = 0; i < 40; ++i) rig.source.add(long_job(i));
    rig.source.after(13, [&](RevocationHandler&) { rig.source.add_call(job("call", R"(,"max_tokens":3)")); });
    rig.run();
    EXPECT_EQ(rig.sink.committed.size(), 41U);
    EXPECT_LE(rig.place_of("call"), 4);
}

// Pins: jobs took what others gave back, so that a call that needs more than is kept for calls waited for the end of the backlog.
TEST(CallsInThePipeline, OneThatNeedsMoreThanIsKeptGetsItsRoomBeforeJobsThatCome) {
    CallsRig rig;
    rig.options.in_flight_max = 100;
    rig.options.in_flight.tokens = 1'600;
    rig.note_ends();
    for (int i = 0; i < 60; ++i) rig.source.add(long_job(i));
    rig.source.after(13, [&](RevocationHandler&) { rig.source.add_call(job("call", R"(,"max_tokens":400,"ignore_eos":true)")); });
    rig.run();
    EXPECT_EQ(rig.sink.committed.size(), 61U);
    EXPECT_LT(rig.place_of("call"), 40);
}

// Pins: the result of a call waited for the commit interval.
TEST(CallsInThePipeline, TheResultOfOneIsCommittedAtOnce) {
    CallsRig rig;
    rig.options.commit_interval = std::chrono::hours(1);
    rig.options.in_flight_max = 400;  // so that the window does not fill
    for (int i = 0; i < 4; ++i) rig.source.add(job("job-" + std::to_string(i), R"(,"max_tokens":150,"ignore_eos":true)"));
    rig.source.add_call(job("call", R"(,"max_tokens":3)"));
    std::set<std::int64_t> committed_with_call;
    rig.sink.before_commit = [&] {
        const bool has_call = std::ranges::any_of(rig.sink.pending, [](const Outcome& one) { return one.source.topic == "calls"; });
        if (!has_call) return;
        for (const Outcome& outcome : rig.sink.pending) committed_with_call.insert(outcome.source.offset);
    };
    rig.run();
    EXPECT_EQ(committed_with_call, std::set<std::int64_t>{4}) << "the jobs beside it had not ended";
}

// Pins: each call's transaction had the results of all jobs that had ended, which made it longer by the partitions that they wrote to.
TEST(CallsInThePipeline, ResultsOfJobsDoNotGoWithThem) {
    CallsRig rig;
    JobsInFlight in_flight(InFlightLimits::of(1'000, 1 << 20, rig.engine_options));
    Publisher publisher(rig.sink, rig.reply, in_flight, rig.observer);
    const std::vector<schema::Source> sources = {{"jobs", 0, 0}, {"calls", 0, 1}, {"jobs", 0, 2}};
    for (const schema::Source& source : sources) {
        in_flight.add({.source = source, .epoch = 1, .job_id = "id", .delivered = {}, .is_call = source.topic == "calls"});
        publisher.take(Refused{.outcome = {.source = source, .epoch = 1, .record = schema::Completion()},
                               .error = {.code = schema::ErrorCode::result_too_large, .param = {}, .message = {}}});
    }
    EXPECT_TRUE(publisher.calls_wait());
    publisher.commit_calls();
    EXPECT_FALSE(publisher.calls_wait());
    EXPECT_EQ(rig.sink.times_committed, (std::map<std::int64_t, int>{{1, 1}}));
    EXPECT_EQ(publisher.uncommitted(), 2U);
    EXPECT_EQ(in_flight.total(), 2U);
    publisher.commit();
    EXPECT_EQ(rig.sink.times_committed, (std::map<std::int64_t, int>{{0, 1}, {1, 1}, {2, 1}}));
    EXPECT_EQ(in_flight.total(), 0U);
}

// Pins: the first calls of a partition, whose starts are committed before they run, waited for the pace of commits.
TEST(CallsInThePipeline, StartsOfThoseHeldBackAreCommittedAtOnce) {
    CallsRig rig;
    const InFlightLimits limits = InFlightLimits::of(1'000, 1 << 20, rig.engine_options);
    JobsInFlight in_flight(limits);
    Publisher publisher(rig.sink, rig.reply, in_flight, rig.observer);
    EXPECT_FALSE(publisher.calls_wait());
    publisher.take(CallsHeldBack());
    EXPECT_TRUE(publisher.calls_wait());
    publisher.commit();
    EXPECT_FALSE(publisher.calls_wait());
    EXPECT_EQ(rig.sink.commits, 1);

    rig.options.commit_interval = std::chrono::hours(1);
    rig.source.held = JobSource::HeldBack::calls;
    rig.source.add(long_job(0));
    rig.run();
    EXPECT_GE(rig.sink.commits, 3) << "while the job ran";
}

// Pins: calls for an adapter that nobody knows took all places of calls while they waited.
TEST(CallsInThePipeline, ThoseThatWaitForAnAdapterTakeNoPlaces) {
    CallsRig rig;
    rig.note_ends();
    for (int i = 0; i < 6; ++i) rig.source.add_call(job("late-" + std::to_string(i), "", "late"));
    rig.source.add_call(job("call"));
    rig.run();
    EXPECT_EQ(rig.sink.committed.size(), 7U);
    for (std::int64_t i = 0; i < 7; ++i) EXPECT_EQ(rig.ending_at(i), "200");
}

// Pins: without places of their own, calls were never read.
TEST(CallsInThePipeline, MoreThanTheirPlacesWaitForThem) {
    CallsRig rig;
    rig.options.calls_in_flight_max = 1;
    for (int i = 0; i < 20; ++i) rig.source.add_call(job("call-" + std::to_string(i)));
    rig.run();
    EXPECT_EQ(rig.sink.committed.size(), 20U);
}

// Pins: readers of a stream did not know how many chunks belong to its result.
TEST(CallsInThePipeline, AStreamsResultSaysHowManyChunksItHas) {
    CallsRig rig;
    rig.source.add_call(job("stream", R"(,"max_tokens":5,"ignore_eos":true,"stream":true)"));
    rig.source.add_call(job("whole", R"(,"max_tokens":5)"));
    rig.run();
    ASSERT_TRUE(rig.sink.completion(0).chunks);
    EXPECT_EQ(*rig.sink.completion(0).chunks, static_cast<std::int64_t>(rig.sink.chunks.size()));
    EXPECT_FALSE(rig.sink.completion(1).chunks);
}

}  // namespace
}  // namespace lorry::consumer
