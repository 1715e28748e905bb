// OffsetTracker: single cases, and out-of-order finishes compared with a naive model.
#include "consumer/offset_tracker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace lorry::consumer {
namespace {

const std::string topic = "lorry.jobs";

schema::Source at(std::int64_t offset, std::int32_t partition = 0) { return {topic, partition, offset}; }

// "offset [holes] highest".
std::string text_of(const PartitionCommit& commit) {
    const auto state = decode_commit_metadata(commit.offset, commit.metadata);
    if (!state) return state.error().text;
    return fmt::format("{} [{}] {}", state->offset, fmt::join(state->holes, " "), state->highest_finished);
}

std::string snapshot_of(const OffsetTracker& tracker) {
    std::string text;
    for (const auto& commit : tracker.snapshot()) text += (text.empty() ? "" : "; ") + text_of(commit);
    return text;
}

TEST(OffsetTracker, CommitsPastAStuckJobWithoutForgettingIt) {
    OffsetTracker tracker;
    const Epoch epoch = tracker.assign(topic, 0, nothing_finished_above(100));
    for (std::int64_t offset = 100; offset < 106; ++offset) EXPECT_TRUE(tracker.polled(at(offset)));
    EXPECT_EQ(snapshot_of(tracker), "");
    for (const std::int64_t offset : {101, 102, 104}) EXPECT_TRUE(tracker.finish(at(offset), epoch));
    EXPECT_EQ(snapshot_of(tracker), "100 [103] 104");
    tracker.finish(at(100), epoch);
    EXPECT_EQ(snapshot_of(tracker), "103 [] 104");
    tracker.finish(at(103), epoch);
    tracker.finish(at(105), epoch);
    EXPECT_EQ(snapshot_of(tracker), "106 [] 106");
    tracker.committed(tracker.snapshot());
    EXPECT_EQ(snapshot_of(tracker), "");
}

TEST(OffsetTracker, SaysHowFarResultsWereSeenWithoutACommitForThatAlone) {
    OffsetTracker tracker;
    CommitState state = nothing_finished_above(10);
    state.seen = {.results = 70, .dead_letters = 3};
    const Epoch epoch = tracker.assign(topic, 0, state);
    for (std::int64_t offset = 10; offset < 13; ++offset) tracker.polled(at(offset));
    const auto seen_of = [](const PartitionCommit& commit) {
        const EndsSeen seen = decode_commit_metadata(commit.offset, commit.metadata)->seen;
        EXPECT_EQ(seen, commit.seen);
        return fmt::format("{} {}", seen.results, seen.dead_letters);
    };
    const auto first = tracker.snapshot_with({{at(10), epoch}});
    EXPECT_EQ(seen_of(first.commits.at(0)), "70 3") << "where the results of this commit will be is not known yet";
    tracker.finish(at(10), epoch, {.results = 75});
    tracker.committed(first.commits);
    EXPECT_EQ(snapshot_of(tracker), "") << "nothing else has changed";
    tracker.finish(at(11), epoch, {.results = 72, .dead_letters = 4});
    EXPECT_EQ(seen_of(tracker.snapshot().at(0)), "75 4");
}

TEST(OffsetTracker, LooksAheadToACommitWithoutFinishingAnything) {
    OffsetTracker tracker;
    const Epoch epoch = tracker.assign(topic, 0, nothing_finished_above(10));
    for (std::int64_t offset = 10; offset < 14; ++offset) tracker.polled(at(offset));
    const auto snapshot = tracker.snapshot_with({{at(10), epoch}, {at(12), epoch}, {at(13), epoch + 1}, {at(1, 7), epoch}});
    EXPECT_EQ(snapshot.is_current, (std::vector<bool>{true, true, false, false}));
    ASSERT_EQ(snapshot.commits.size(), 1U);
    EXPECT_EQ(text_of(snapshot.commits[0]), "11 [] 12");
    EXPECT_EQ(tracker.incomplete(), 4U);
    EXPECT_EQ(snapshot_of(tracker), "") << "nothing has changed";
    tracker.finish(at(10), epoch);
    tracker.finish(at(12), epoch);
    tracker.committed(snapshot.commits);
    EXPECT_EQ(snapshot_of(tracker), "") << "what was committed is what is";
}

TEST(OffsetTracker, SaysNothingWhereWhatItTookOverIsTooLong) {
    OffsetTracker tracker(58);
    CommitState state = nothing_finished_above(0);
    for (std::int64_t hole = 2; hole < 200; hole += 2) state.holes.push_back(hole);
    state.highest_finished = 201;
    const Epoch epoch = tracker.assign(topic, 0, state, /*recorded=*/false);
    auto commits = tracker.snapshot();
    ASSERT_EQ(commits.size(), 1U) << "not yet in the group's offsets";
    EXPECT_EQ(decode_commit_metadata(0, commits[0].metadata).error().kind, CommitMetadataError::Kind::absent);
    EXPECT_TRUE(tracker.polled(at(0)));
    EXPECT_FALSE(tracker.polled(at(1))) << "it is known here all the same";
    tracker.committed(commits);
    tracker.finish(at(0), epoch);
    commits = tracker.snapshot();
    ASSERT_EQ(commits.size(), 1U);
    EXPECT_EQ(commits[0].offset, 2);
}

TEST(OffsetTracker, SkipsWhatAnEarlierOwnerFinishedAndForgetsWhatTheLogNoLongerHolds) {
    OffsetTracker tracker;
    tracker.assign(topic, 0, {.offset = 10, .holes = {12, 15}, .highest_finished = 17, .starts = {{12, 2}}});
    EXPECT_TRUE(tracker.polled(at(10)));
    EXPECT_FALSE(tracker.polled(at(11)));
    // 12 was deleted by retention or compaction: nothing waits for it.
    EXPECT_FALSE(tracker.polled(at(14)));
    EXPECT_TRUE(tracker.polled(at(15)));
    EXPECT_FALSE(tracker.polled(at(17)));
    EXPECT_TRUE(tracker.polled(at(18)));
    EXPECT_EQ(tracker.incomplete(), 3U);
    EXPECT_EQ(snapshot_of(tracker), "10 [15] 17");
}

TEST(OffsetTracker, DropsWorkOfAnEarlierEpoch) {
    OffsetTracker tracker;
    const Epoch first = tracker.assign(topic, 0, nothing_finished_above(0));
    tracker.polled(at(0));
    tracker.drop(topic, 0);
    EXPECT_FALSE(tracker.finish(at(0), first));
    const Epoch second = tracker.assign(topic, 0, nothing_finished_above(0));
    EXPECT_GT(second, first);
    tracker.polled(at(0));
    EXPECT_FALSE(tracker.is_current(at(0), first));
    EXPECT_FALSE(tracker.finish(at(0), first));
    EXPECT_TRUE(tracker.finish(at(0), second));
    EXPECT_FALSE(tracker.finish(at(0), second)) << "twice";
}

TEST(OffsetTracker, KeepsCountingWhileAPartitionDrains) {
    OffsetTracker tracker;
    const Epoch epoch = tracker.assign(topic, 3, nothing_finished_above(0));
    tracker.polled(at(0, 3));
    tracker.drain(topic, 3);
    EXPECT_TRUE(tracker.finish(at(0, 3), epoch));
    EXPECT_EQ(snapshot_of(tracker), "1 [] 1");
}

TEST(OffsetTracker, RefusesAStartThatWouldNotFitIntoTheMetadata) {
    OffsetTracker tracker(54);
    const Epoch epoch = tracker.assign(topic, 0, nothing_finished_above(0));
    int polled = 0;
    for (std::int64_t offset = 0; offset < 100 && tracker.has_room_for(at(offset)); ++offset, ++polled) tracker.polled(at(offset));
    EXPECT_GT(polled, 3);
    EXPECT_LT(polled, 15);
    int started = 0;
    for (std::int64_t offset = 0; offset < polled; ++offset) started += tracker.start(at(offset), epoch).has_value() ? 1 : 0;
    EXPECT_LT(started, polled);
    tracker.finish(at(polled - 1), epoch);
    EXPECT_LE(tracker.metadata_chars(), 54U);
}

// Successive owners crash at random moments; each must read exactly the jobs that the last commit does not list as finished.
TEST(OffsetTracker, AgreesWithANaiveModelOverCrashesHolesAndAdmission) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    for (int round = 0; round < 120; ++round) {
        const std::size_t chars_max = random() % 2 == 0 ? 4096 : 46 + random() % 40;
        std::vector<std::int64_t> log;  // offsets that exist
        for (std::int64_t offset = 0; offset < 400; ++offset) {
            if (random() % 8 != 0) log.push_back(offset + (random() % 50 == 0 ? 200 : 0));
        }
        std::sort(log.begin(), log.end());
        log.erase(std::unique(log.begin(), log.end()), log.end());
        std::set<std::int64_t> committed;  // finished as of the last commit
        PartitionCommit commit{topic, 0, 0, 0, encode_commit_metadata({.offset = 0, .holes = {}, .highest_finished = 0, .starts = {}})};
        std::set<std::int64_t> ever;
        for (int owner = 0; owner < 12; ++owner) {
            OffsetTracker tracker(chars_max);
            const auto state = decode_commit_metadata(commit.offset, commit.metadata);
            ASSERT_TRUE(state) << state.error().text;
            const Epoch epoch = tracker.assign(topic, 0, *state);
            std::set<std::int64_t> finished = committed;
            std::vector<std::int64_t> flying;
            auto next = std::lower_bound(log.begin(), log.end(), commit.offset);
            ASSERT_TRUE(std::all_of(log.begin(), next, [&](std::int64_t offset) { return committed.contains(offset); }));
            const bool last = owner == 11;
            for (int step = 0; last ? next != log.end() || !flying.empty() : step < static_cast<int>(random() % 400); ++step) {
                const bool poll = random() % 3 != 0 && next != log.end() && tracker.has_room_for(at(*next));
                if (poll) {
                    const bool fresh = tracker.polled(at(*next));
                    ASSERT_EQ(fresh, !committed.contains(*next)) << "offset " << *next << " of owner " << owner;
                    if (fresh) flying.push_back(*next);
                    ++next;
                } else if (!flying.empty()) {
                    const std::size_t pick = random() % flying.size();
                    if (random() % 4 == 0) static_cast<void>(tracker.start(at(flying[pick]), epoch));
                    ASSERT_TRUE(tracker.finish(at(flying[pick]), epoch));
                    finished.insert(flying[pick]);
                    flying.erase(flying.begin() + static_cast<std::ptrdiff_t>(pick));
                } else {
                    ASSERT_TRUE(next == log.end() || tracker.has_room_for(at(*next))) << "nothing in flight and still no room";
                }
                if (random() % 5 == 0 || (last && flying.empty())) {
                    commit = tracker.snapshot(true).at(0);
                    committed = finished;
                    ASSERT_LE(commit.metadata.size(), chars_max);
                }
            }
            ASSERT_EQ(tracker.incomplete(), flying.size());
            // Retention or compaction between two owners.
            if (!last && random() % 4 == 0 && !log.empty()) log.erase(log.begin() + static_cast<std::ptrdiff_t>(random() % log.size()));
            for (const std::int64_t offset : finished) ever.insert(offset);
        }
        for (const std::int64_t offset : log) ASSERT_TRUE(committed.contains(offset)) << offset << " was lost";
    }
}

}  // namespace
}  // namespace lorry::consumer
