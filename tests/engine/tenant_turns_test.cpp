// Whose request starts next: tenants share the engine by what their requests cost, and answers do not depend on it.
#include "engine/tenant_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <algorithm>

#include "engine/engine.h"
#include "tests/support/hash_engine.h"

namespace lorry::engine {
namespace {

using ::testing::ElementsAre;

// Ids count from 0.
struct Turns : TenantTurns {
    std::uint64_t arrive(const std::string& tenant, std::int64_t cost) {
        return TenantTurns::arrive({.id = next_id++, .tenant = tenant, .cost = cost});
    }
    RequestId next_id = 0;
};

TEST(TenantTurns, RequestsOfOneTenantKeepTheirOrder) {
    Turns turns;
    std::uint64_t last = turns.arrive("a", 7);
    for (RequestId i = 0; i < 100; ++i) {
        const std::uint64_t next = turns.arrive("a", 1 + static_cast<std::int64_t>(i));
        EXPECT_LT(last, next);
        if (i % 3 == 0) turns.start(i);
        last = next;
    }
}

TEST(TenantTurns, ATenantThatComesLaterDoesNotWaitForAllOfAnother) {
    Turns turns;
    for (int i = 0; i < 100; ++i) turns.arrive("many", 10);  // 0, 10, 20, …
    for (RequestId id = 0; id <= 3; ++id) turns.start(id);
    EXPECT_EQ(turns.arrive("few", 5), 30U);
    EXPECT_EQ(turns.arrive("few", 5), 35U) << "two of these for each of the other's, as they cost half";
    EXPECT_EQ(turns.arrive("few", 5), 40U);
    EXPECT_EQ(turns.arrive("many", 10), 1'000U);
}

TEST(TenantTurns, AQuietTenantHasSavedNothingUpAndIsForgotten) {
    Turns turns;
    for (RequestId i = 0; i < 1'000; ++i) {
        turns.arrive(fmt::format("tenant {}", i), 10);
        turns.start(2 * i);
        turns.arrive("busy", 10);
        turns.start(2 * i + 1);
    }
    EXPECT_LE(turns.remembered(), 200U);
    const std::uint64_t busy = turns.arrive("busy", 10);
    EXPECT_EQ(turns.arrive("tenant 0", 10) + 10, busy) << "as one that was never seen, and no earlier";
}

TEST(TenantTurns, InventedTenantsTakeBoundedMemory) {
    Turns turns;
    const std::uint64_t first = turns.arrive("honest", 10);
    turns.start(0);
    for (RequestId i = 1; i <= 100'000; ++i) {
        turns.arrive(fmt::format("invented {}", i), 1'000);
        turns.start(i);
    }
    EXPECT_LE(turns.remembered(), TenantTurns::tenants_max);
    EXPECT_EQ(first, 0U);
    EXPECT_GE(turns.arrive("honest", 10), 10U) << "its requests keep their order";
}

// Pins: an urgent request of a tenant moved the time past all that the tenant had waiting, so that newcomers came after it.
TEST(TenantTurns, ARequestThatStartsOutOfTurnHoldsNobodyUp) {
    Turns turns;
    for (int i = 0; i < 100; ++i) turns.arrive("many", 10);
    turns.start(0);
    turns.arrive("many", 10);
    turns.start(100);
    EXPECT_EQ(turns.arrive("few", 5), 10U) << "the first that waits has turn 10";
}

TEST(TenantTurns, RequestsThatLeaveBeforeTheyStartCostNothing) {
    Turns turns;
    turns.arrive("a", 10);
    turns.start(0);
    turns.arrive("b", 10);  // waits
    for (RequestId id = 2; id < 1'000; ++id) turns.arrive("a", 10);
    for (RequestId id = 2; id < 1'000; ++id) turns.leave(id);
    EXPECT_EQ(turns.arrive("a", 10), 10U) << "after the one that started";
}

// One request runs at a time.
struct TenantsRig : tests::CheckedEngine {
    TenantsRig() : CheckedEngine(1, 4'000, 2'000, {.sequences_max = 1, .step_rows_max = 64}) {}
    void submit(RequestId id, const std::string& tenant) {
        Request request = tests::request_of(id, tests::prompt_of(10, static_cast<std::int32_t>(id)), 5);
        request.tenant = tenant;
        CheckedEngine::submit(std::move(request));
    }
    // The requests in the order in which they end.
    std::vector<RequestId> order() {
        std::vector<RequestId> ids;
        while (engine->has_work()) {
            step();
            for (const auto& [id, result] : ended) {
                if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
            }
        }
        return ids;
    }
};

// Pins: whoever had sent more got more, and others waited for all of it.
TEST(TenantTurns, TheEngineTakesTenantsInTurn) {
    TenantsRig rig;
    for (RequestId id = 1; id <= 6; ++id) rig.submit(id, "many");
    for (RequestId id = 11; id <= 12; ++id) rig.submit(id, "few");
    rig.submit(21, "");
    EXPECT_THAT(rig.order(), ElementsAre(1, 11, 21, 2, 12, 3, 4, 5, 6));
}

}  // namespace
}  // namespace lorry::engine
