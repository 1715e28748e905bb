// What /healthz says in each state of a worker.
#include "ops/worker/health.h"

#include <gtest/gtest.h>

#include <string>

#include <fmt/format.h>

namespace lorry::ops {
namespace {

using namespace std::chrono_literals;

TEST(Health, NamesThePhaseAHungPipelineAndBlockedPartitions) {
    consumer::KafkaMember::Stats member;
    const MetricSources sources{.member = [&] { return member; }, .ledger = {}};
    const auto shown = [](const Health& health) { return (health.ok ? "200 " : "503 ") + health.state; };
    EXPECT_EQ(shown(health_of(Phase::starting, 0s, {})), "503 starting");
    EXPECT_EQ(shown(health_of(Phase::draining, 0s, {})), "503 draining");
    EXPECT_EQ(shown(health_of(Phase::running, 119s, sources)), "200 running");
    EXPECT_EQ(shown(health_of(Phase::running, 121s, sources)), "503 jobs are not polled");
    member.unreadable = {{.topic = "lorry.jobs", .partition = 2, .offset = 7, .codec = "unknown", .reason = "no such codec"},
                         {.topic = "lorry.jobs", .partition = 3, .offset = 8, .codec = "none", .reason = "bad checksum"}};
    EXPECT_EQ(shown(health_of(Phase::running, 0s, sources)),
              fmt::format("200 degraded\npartition 2 is blocked at offset 7: no such codec. {}\npartition 3 is blocked at offset 8: bad "
                          "checksum. {}",
                          consumer::advice_for(member.unreadable[0]), consumer::advice_for(member.unreadable[1])));
}

}  // namespace
}  // namespace lorry::ops
