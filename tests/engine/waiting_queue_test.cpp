// Which request starts next: priority, fairness between adapters, turns.
#include "engine/waiting_queue.h"

#include <gtest/gtest.h>

namespace lorry::engine {
namespace {

bool always(std::string_view) { return true; }
bool never(std::string_view) { return false; }

const WaitingQueue::Context all_ready{.is_ready = always, .is_live = never, .needs_room = {}};

WaitingQueue::Context live(std::string adapter) {
    return {.is_ready = always, .is_live = [adapter](std::string_view hash) { return hash == adapter; }, .needs_room = {}};
}

TEST(WaitingQueue, StartsInOrderOfArrivalWhenNothingElseDecides) {
    WaitingQueue queue(1000);
    queue.push({.id = 1, .adapter = "a", .turn = 0, .cost = 1});
    queue.push({.id = 2, .adapter = "b", .turn = 1, .cost = 1});
    EXPECT_EQ(queue.candidates(5, all_ready).front(), 1U);
}

TEST(WaitingQueue, PutsALowerPriorityNumberFirst) {
    WaitingQueue queue(1000);
    queue.push({.id = 1, .adapter = "a", .priority = 5, .turn = 0, .cost = 1});
    queue.push({.id = 2, .adapter = "a", .priority = 0, .turn = 1, .cost = 1});
    EXPECT_EQ(queue.candidates(2, all_ready), (std::vector<RequestId>{2, 1}));
}

TEST(WaitingQueue, FavoursAdaptersThatAreInTheBatch) {
    WaitingQueue queue(1000);
    queue.push({.id = 1, .adapter = "cold", .turn = 0, .cost = 1});
    queue.push({.id = 2, .adapter = "live", .turn = 1, .cost = 1});
    EXPECT_EQ(queue.candidates(1, live("live")), (std::vector<RequestId>{2}));
}

TEST(WaitingQueue, KeepsToTheOrderOfArrivalWhenItIsToldNotToGroup) {
    WaitingQueue queue(1000);
    queue.push({.id = 1, .adapter = "cold", .turn = 0, .cost = 1});
    queue.push({.id = 2, .adapter = "live", .turn = 1, .cost = 1});
    queue.push({.id = 3, .adapter = "cold", .turn = 2, .cost = 1});
    WaitingQueue::Context by_arrival = live("live");
    by_arrival.groups = false;
    EXPECT_EQ(queue.candidates(3, by_arrival), (std::vector<RequestId>{1, 2, 3}));
}

TEST(WaitingQueue, LetsNoAdapterBePassedOverForMoreThanItsPatience) {
    WaitingQueue queue(100);
    queue.push({.id = 1, .adapter = "rare", .turn = 0, .cost = 10});
    for (RequestId id = 2; id < 200; ++id) queue.push({.id = id, .adapter = "hot", .turn = id, .cost = 10});
    int started_before = 0;
    while (true) {
        const RequestId next = queue.candidates(1, live("hot")).front();
        queue.start(next);
        if (next == 1) break;
        ++started_before;
    }
    EXPECT_EQ(started_before, 10) << "100 tokens of others at 10 each, then its turn";
}

TEST(WaitingQueue, PassesOverAdaptersThatAreNotLoadedWithoutTakingTheirTurn) {
    WaitingQueue queue(20);
    queue.push({.id = 1, .adapter = "loading", .turn = 0, .cost = 10});
    for (RequestId id = 2; id < 9; ++id) queue.push({.id = id, .adapter = "ready", .turn = id, .cost = 10});
    const WaitingQueue::Context some{.is_ready = [](std::string_view hash) { return hash == "ready"; },
                                     .is_live = [](std::string_view hash) { return hash == "ready"; },
                                     .needs_room = {}};
    for (int i = 0; i < 3; ++i) queue.start(queue.candidates(1, some).front());
    EXPECT_EQ(queue.candidates(1, live("ready")), (std::vector<RequestId>{1})) << "overdue by the time it is loaded";
}

TEST(WaitingQueue, LetsTheBatchRunDryForAnOverdueAdapterThatHasNoRoom) {
    WaitingQueue queue(20);
    queue.push({.id = 1, .adapter = "outside", .turn = 0, .cost = 10});
    for (RequestId id = 2; id < 9; ++id) queue.push({.id = id, .adapter = "inside", .turn = id, .cost = 10});
    const auto is_inside = [](std::string_view hash) { return hash == "inside"; };
    const WaitingQueue::Context full{.is_ready = is_inside, .is_live = is_inside, .needs_room = "outside"};
    for (int i = 0; i < 2; ++i) queue.start(queue.candidates(1, full).front());
    EXPECT_TRUE(queue.candidates(1, full).empty()) << "20 tokens passed it by: nothing else starts until it has a slot";
}

TEST(WaitingQueue, NamesTheAdaptersToLoadInOrderOfNeed) {
    WaitingQueue queue(1000);
    queue.push({.id = 1, .adapter = "", .turn = 0, .cost = 1});
    queue.push({.id = 2, .adapter = "z", .turn = 1, .cost = 1});
    queue.push({.id = 3, .adapter = "a", .turn = 2, .cost = 1});
    const auto firsts = [&] {
        std::string text;
        for (const WaitingEntry* first : queue.firsts()) text += first->adapter + std::to_string(first->id) + " ";
        return text;
    };
    EXPECT_EQ(firsts(), "z2 a3 ");
    queue.push({.id = 4, .adapter = "a", .priority = -1, .turn = 3, .cost = 1});
    EXPECT_EQ(firsts(), "a4 z2 ") << "a group moves with its first request";
    queue.start(4);
    EXPECT_EQ(firsts(), "z2 a3 ");
    queue.remove(2);
    EXPECT_EQ(firsts(), "a3 ");
    EXPECT_EQ(queue.requests_of("a"), (std::vector<RequestId>{3}));
    queue.remove(3);
    EXPECT_EQ(firsts(), "");
}

TEST(WaitingQueue, NamesFurtherRequestsOfLargeJobsAfterAllOthers) {
    WaitingQueue queue(1000);
    for (RequestId id = 1; id <= 4; ++id) queue.push({.id = id, .adapter = "", .turn = id, .cost = 1, .large = true});
    WaitingQueue::Context context = all_ready;
    context.yielding_max = 2;
    EXPECT_EQ(queue.candidates(3, context), (std::vector<RequestId>{1, 2, 3})) << "there are no others";
    queue.push({.id = 5, .adapter = "", .turn = 5, .cost = 1});
    queue.push({.id = 6, .adapter = "a", .turn = 6, .cost = 1});
    queue.push({.id = 7, .adapter = "a", .turn = 7, .cost = 1, .large = true});
    EXPECT_EQ(queue.candidates(9, context), (std::vector<RequestId>{1, 2, 5, 6, 3, 4, 7}));
    EXPECT_EQ(queue.candidates(5, context), (std::vector<RequestId>{1, 2, 5, 6, 3}));
    context.yielding_max = 0;
    EXPECT_EQ(queue.candidates(2, context), (std::vector<RequestId>{5, 6}));
    queue.remove(5);
    queue.remove(6);
    EXPECT_FALSE(queue.has_others(false));
}

// Pins: calls waited for all jobs that had come before, or jobs for all calls.
TEST(WaitingQueue, JobsYieldToCallsBeyondTheirShare) {
    WaitingQueue queue(1000);
    queue.push({.id = 1, .adapter = "", .priority = -5, .turn = 1, .cost = 1});
    queue.push({.id = 2, .adapter = "a", .turn = 2, .cost = 1});
    queue.push({.id = 3, .adapter = "a", .turn = 3, .cost = 1, .is_call = true});
    queue.push({.id = 4, .adapter = "b", .turn = 4, .cost = 1, .is_call = true});
    queue.push({.id = 5, .adapter = "b", .turn = 5, .cost = 1, .large = true, .is_call = true});
    EXPECT_EQ((*queue.calls().begin())->id, 3U);
    WaitingQueue::Context context = all_ready;
    context.to_calls = true;
    context.yielding_max = 1;
    EXPECT_EQ(queue.calls().size(), 3U);
    EXPECT_EQ(queue.yielding(true), 3U) << "two jobs and a large call";
    EXPECT_EQ(queue.candidates(5, context), (std::vector<RequestId>{1, 3, 4, 2, 5})) << "one that yields comes in its turn";
    context.yielding_max = 0;
    EXPECT_EQ(queue.candidates(2, context), (std::vector<RequestId>{3, 4}));
    for (RequestId id = 3; id <= 5; ++id) queue.remove(id);
    EXPECT_TRUE(queue.calls().empty());
    EXPECT_FALSE(queue.has_others(true));
}

}  // namespace
}  // namespace lorry::engine
