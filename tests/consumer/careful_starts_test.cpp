// Starts after a takeover: listed in a commit at first, in small groups the second time, alone the third, refused the fourth.
#include "consumer/careful_starts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lorry::consumer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::string jobs_topic = "lorry.jobs";
constexpr std::chrono::seconds quiet{60};

// Successive owners of partition 0.
class CarefulStartsTest : public ::testing::Test {
protected:
    CommitState committed{.offset = 0, .holes = {}, .highest_finished = 0, .starts = {}};

    struct Owner {
        OffsetTracker tracker;
        CarefulStarts careful;
        Epoch epoch;
        std::vector<Delivery> out;
        Clock::time_point now{};
        Owner(const CommitState& state, std::size_t jobs)
            : careful(tracker, {.jobs = jobs, .at_once = 3, .suspects_at_once = 2, .quiet_max = quiet}),
              epoch(tracker.assign(jobs_topic, 0, state)) {
            careful.assigned(jobs_topic, 0);
        }
        void poll(std::int64_t offset) {
            ASSERT_TRUE(tracker.polled({jobs_topic, 0, offset}));
            careful.take({.record = {.source = {jobs_topic, 0, offset}}, .epoch = epoch, .refusal = std::nullopt}, out, now);
        }
        std::vector<std::int64_t> delivered() {
            careful.release(out, now);
            std::vector<std::int64_t> offsets;
            for (const Delivery& delivery : std::exchange(out, {})) offsets.push_back(delivery.record.source.offset);
            return offsets;
        }
        void finish(std::int64_t offset) { ASSERT_TRUE(tracker.finish({jobs_topic, 0, offset}, epoch)); }
    };
    void commit(Owner& owner) {
        const auto commits = owner.tracker.snapshot(true);
        owner.tracker.committed(commits);
        committed = *decode_commit_metadata(commits.at(0).offset, commits.at(0).metadata);
    }
};

TEST_F(CarefulStartsTest, TheFirstJobsStartOnceACommitListsThemAndTheOthersAtOnce) {
    Owner owner(committed, 2);
    owner.poll(0);
    owner.poll(1);
    EXPECT_TRUE(owner.careful.is_full(jobs_topic));
    owner.poll(2);
    EXPECT_THAT(owner.delivered(), ElementsAre(2)) << "not one of the first two";
    EXPECT_EQ(owner.tracker.started(jobs_topic), 2U);
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(0, 1));
    EXPECT_EQ(owner.careful.waiting(), 0U);
    EXPECT_EQ(committed.starts, (std::vector<StartCount>{{0, 1}, {1, 1}}));
}

TEST_F(CarefulStartsTest, NoMoreAreStartedAtOnceThanMayBecomeSuspects) {
    Owner owner(committed, 8);
    for (std::int64_t offset = 0; offset < 5; ++offset) owner.poll(offset);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(0, 1, 2));
    commit(owner);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    owner.finish(1);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(3));
}

TEST_F(CarefulStartsTest, WhatWasRunningWhenAWorkerDiedRunsInSmallGroups) {
    committed.starts = {{1, 1}, {2, 1}, {3, 1}};
    Owner owner(committed, 8);
    for (const std::int64_t offset : {0, 1, 2, 3, 4}) owner.poll(offset);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_EQ(committed.starts, (std::vector<StartCount>{{1, 2}, {2, 2}, {3, 1}})) << "two at a time";
    EXPECT_THAT(owner.delivered(), ElementsAre(1, 2));
    EXPECT_THAT(owner.delivered(), IsEmpty());
    owner.finish(1);
    EXPECT_THAT(owner.delivered(), IsEmpty()) << "the third one's start is not committed yet";
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(3)) << "it joins the one that still runs";
    owner.finish(3);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    owner.finish(2);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(0, 4)) << "and then the rest";
}

TEST_F(CarefulStartsTest, WhatWasRunningWhenTwoWorkersDiedRunsAloneAndFirst) {
    committed.starts = {{0, 1}, {1, 2}, {2, 2}};
    Owner owner(committed, 8);
    for (const std::int64_t offset : {0, 1, 2, 3}) owner.poll(offset);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(1)) << "listed as started for the third time, and nothing else runs";
    commit(owner);
    EXPECT_THAT(owner.delivered(), IsEmpty()) << "one is running alone";
    EXPECT_EQ(committed.starts, (std::vector<StartCount>{{0, 1}, {1, 3}, {2, 2}})) << "no other suspect has not started again";
    owner.finish(1);
    EXPECT_THAT(owner.delivered(), IsEmpty()) << "the second one's start is not committed yet";
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(2));
    owner.finish(2);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(0)) << "of one death";
    owner.finish(0);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(3)) << "and then the rest";
}

TEST_F(CarefulStartsTest, WhatComesWhileSuspectsRunWaits) {
    committed.starts = {{0, 1}};
    Owner owner(committed, 2);
    for (std::int64_t offset = 0; offset < 4; ++offset) owner.poll(offset);
    EXPECT_THAT(owner.delivered(), IsEmpty()) << "also the last one, which is not among the first two";
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(0));
    owner.poll(4);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    owner.finish(0);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(1, 2, 3));
    owner.poll(5);
    EXPECT_THAT(owner.delivered(), ElementsAre(5));
}

TEST_F(CarefulStartsTest, ALongJobHoldsSuspectsUpForAWhileOnly) {
    committed.starts = {{1, 1}, {2, 1}};
    Owner owner(committed, 0);
    owner.poll(0);
    EXPECT_THAT(owner.delivered(), ElementsAre(0)) << "runs for an hour";
    for (const std::int64_t offset : {1, 2, 3}) owner.poll(offset);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    owner.now += quiet;
    EXPECT_THAT(owner.delivered(), IsEmpty()) << "their starts are not committed yet";
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(1, 2)) << "beside it";
    EXPECT_THAT(owner.delivered(), IsEmpty()) << "nothing else comes beside suspects";
    owner.finish(1);
    owner.finish(2);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(3)) << "the long one is waited for no longer";
}

TEST_F(CarefulStartsTest, WhatWasOverdueOnceIsWaitedForAgainTheNextTime) {
    committed.starts = {{1, 1}, {5, 1}};
    Owner owner(committed, 0);
    owner.poll(0);
    EXPECT_THAT(owner.delivered(), ElementsAre(0));
    owner.poll(1);
    owner.now += quiet;
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(1)) << "beside the long one";
    owner.finish(0);
    owner.finish(1);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    owner.poll(2);
    EXPECT_THAT(owner.delivered(), ElementsAre(2));
    owner.poll(5);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), IsEmpty()) << "as many run as were overdue before, but it is another one";
    owner.finish(2);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(5));
}

TEST_F(CarefulStartsTest, ALongSuspectHoldsOthersUpForAWhileOnly) {
    committed.starts = {{0, 1}, {1, 2}};
    Owner owner(committed, 8);
    for (const std::int64_t offset : {0, 1, 2}) owner.poll(offset);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(1));
    owner.now += quiet - std::chrono::seconds(1);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    owner.now += std::chrono::seconds(1);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(0)) << "the next suspects";
    owner.finish(0);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(2)) << "and the rest";
    commit(owner);
    EXPECT_THAT(committed.starts, ElementsAre(StartCount{1, 3}, StartCount{2, 1})) << "its deaths go on being counted";
}

TEST_F(CarefulStartsTest, WhatWasRunningWhenThreeWorkersDiedIsRefused) {
    for (int death = 0; death < 3; ++death) {
        Owner owner(committed, 8);
        owner.poll(0);
        EXPECT_THAT(owner.delivered(), IsEmpty());
        commit(owner);
        EXPECT_THAT(owner.delivered(), ElementsAre(0)) << "death " << death;
    }
    Owner owner(committed, 8);
    owner.poll(0);
    owner.careful.release(owner.out, owner.now);
    ASSERT_EQ(owner.out.size(), 1U);
    ASSERT_TRUE(owner.out[0].refusal);
    EXPECT_EQ(name_of(owner.out[0].refusal->code), "worker_crashed");
}

TEST_F(CarefulStartsTest, AWorkerThatLeavesInOrderLeavesNoSuspects) {
    {
        Owner owner(committed, 8);
        owner.poll(0);
        EXPECT_THAT(owner.delivered(), IsEmpty());
        commit(owner);
        EXPECT_THAT(owner.delivered(), ElementsAre(0));
        owner.tracker.drain(jobs_topic, 0);
        commit(owner);
        EXPECT_THAT(committed.starts, IsEmpty());
    }
    Owner owner(committed, 0);
    owner.poll(0);
    EXPECT_THAT(owner.delivered(), ElementsAre(0));
}

TEST_F(CarefulStartsTest, ForgetsWhatWaitsWhenThePartitionGoes) {
    committed.starts = {{1, 1}};
    Owner owner(committed, 8);
    owner.poll(0);
    owner.poll(1);
    owner.careful.gone(jobs_topic, 0);
    EXPECT_EQ(owner.careful.waiting(), 0U);
}

// Pins: while 100,000 jobs waited, the first calls of a new worker shared the places of starts with them and took half a second each.
TEST_F(CarefulStartsTest, JobsTakeNoPlacesFromCalls) {
    Owner owner(committed, 3);
    const std::string calls_topic = "lorry.calls";
    const Epoch calls_epoch = owner.tracker.assign(calls_topic, 0, {});
    owner.careful.assigned(calls_topic, 0);
    for (std::int64_t offset = 0; offset < 3; ++offset) owner.poll(offset);
    EXPECT_TRUE(owner.careful.is_full(jobs_topic));
    EXPECT_FALSE(owner.careful.is_full(calls_topic));
    EXPECT_THAT(owner.delivered(), IsEmpty());
    const auto call = [&](std::int64_t offset) { return schema::Source{calls_topic, 0, offset}; };
    for (std::int64_t offset = 0; offset < 2; ++offset) {
        ASSERT_TRUE(owner.tracker.polled(call(offset)));
        owner.careful.take({.record = {.source = call(offset)}, .epoch = calls_epoch, .refusal = std::nullopt}, owner.out, owner.now);
    }
    EXPECT_THAT(owner.delivered(), IsEmpty());
    EXPECT_EQ(owner.tracker.started(jobs_topic), 3U) << "all places of jobs";
    EXPECT_EQ(owner.tracker.started(calls_topic), 2U);
    owner.tracker.committed(owner.tracker.snapshot(true));
    EXPECT_EQ(owner.delivered().size(), 5U);
}

// Pins: 640 jobs whose adapters nobody registered took the places of everyone's starts for as long as they waited.
TEST_F(CarefulStartsTest, JobsThatWaitHoldNoPlaceAndAreListedAgainWhenTheyGoOn) {
    Owner owner(committed, 8);
    const auto at = [](std::int64_t offset) { return schema::Source{jobs_topic, 0, offset}; };
    for (std::int64_t offset = 0; offset < 6; ++offset) owner.poll(offset);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(0, 1, 2));
    for (const std::int64_t offset : {0, 1, 2}) owner.careful.waits(at(offset), owner.epoch);
    EXPECT_EQ(owner.tracker.started(jobs_topic), 0U);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(3, 4, 5));
    EXPECT_EQ(committed.starts, (std::vector<StartCount>{{3, 1}, {4, 1}, {5, 1}})) << "a job that waits is no suspect";

    EXPECT_FALSE(owner.careful.may_go_on(at(0), owner.epoch)) << "three others run";
    owner.finish(4);
    EXPECT_FALSE(owner.careful.may_go_on(at(0), owner.epoch)) << "its start is not in a commit";
    commit(owner);
    EXPECT_TRUE(owner.careful.may_go_on(at(0), owner.epoch));
    EXPECT_TRUE(owner.careful.may_go_on(at(0), owner.epoch)) << "it does not wait any more";
    owner.careful.waits(at(1), owner.epoch);
    owner.finish(1);
    EXPECT_EQ(owner.tracker.waiting(), 1U) << "only the job at offset 2";
}

// Pins: a job that had waited for its adapter started beside suspects, so that its own fault would have incriminated them.
TEST_F(CarefulStartsTest, JobsThatWaitedDoNotGoOnBesideSuspects) {
    committed = {.offset = 0, .holes = {}, .highest_finished = 0, .starts = {{1, 1}, {2, 1}}};
    Owner owner(committed, 1);
    owner.poll(0);
    owner.careful.waits({jobs_topic, 0, 0}, owner.epoch);
    owner.poll(1);
    owner.poll(2);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(1, 2));
    EXPECT_FALSE(owner.careful.may_go_on({jobs_topic, 0, 0}, owner.epoch));
    owner.careful.waits({jobs_topic, 0, 2}, owner.epoch);
    owner.finish(1);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    EXPECT_FALSE(owner.careful.may_go_on({jobs_topic, 0, 2}, owner.epoch)) << "its new start is not in a commit";
    commit(owner);
    EXPECT_TRUE(owner.careful.may_go_on({jobs_topic, 0, 2}, owner.epoch))
        << "a suspect that waited holds nobody up, and runs beside others";
}

TEST_F(CarefulStartsTest, SuspectsDoNotWaitForJobsThatWait) {
    committed = {.offset = 0, .holes = {}, .highest_finished = 0, .starts = {{0, 1}, {1, 1}, {2, 1}}};
    Owner owner(committed, 8);
    for (std::int64_t offset = 0; offset < 3; ++offset) owner.poll(offset);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(0, 1));
    for (const std::int64_t offset : {0, 1}) owner.careful.waits({jobs_topic, 0, offset}, owner.epoch);
    EXPECT_THAT(owner.delivered(), IsEmpty());
    commit(owner);
    EXPECT_THAT(owner.delivered(), ElementsAre(2));
    EXPECT_EQ(committed.starts, (std::vector<StartCount>{{0, 1}, {1, 1}, {2, 2}})) << "their deaths still count";
}

}  // namespace
}  // namespace lorry::consumer
