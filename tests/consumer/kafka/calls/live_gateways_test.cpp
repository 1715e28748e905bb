// Gateways that count each other over an embedded broker.
#include "consumer/kafka/calls/live_gateways.h"

#include <gtest/gtest.h>

#include "consumer/kafka/producer.h"
#include "tests/support/kafka_fixture.h"

namespace lorry::consumer {
namespace {

class LiveGatewaysTest : public KafkaTest {
protected:
    LiveGateways::Options options(std::chrono::milliseconds alive = 60s) const {
        return {.topic = topics.repeats(), .beat = 50ms, .alive = alive};
    }
    static bool becomes(const LiveGateways& one, std::int64_t count) {
        const Clock::time_point deadline = Clock::now() + 30s;
        while (one.count() != count && Clock::now() < deadline) std::this_thread::sleep_for(5ms);
        return one.count() == count;
    }
};

TEST_F(LiveGatewaysTest, CountThoseThatRunAndHearOfTheirEnd) {
    const LiveGateways one(config, options());
    EXPECT_EQ(one.count(), 1) << "itself, before anything is read";
    {
        const LiveGateways two(config, options());
        const LiveGateways three(config, options());
        EXPECT_TRUE(becomes(one, 3));
        EXPECT_TRUE(becomes(three, 3));
    }
    EXPECT_TRUE(becomes(one, 1)) << "long before their heartbeats are too old";
    one.check();
}

TEST_F(LiveGatewaysTest, OneThatWasKilledCountsForAWhile) {
    const LiveGateways one(config, options(1s));
    KafkaProducer killed(config, {.limits = {}});
    const auto write = [&](const std::string& key, const std::string& value) {
        ASSERT_TRUE(killed.send({.topic = topics.repeats(), .partition = std::nullopt, .key = key, .value = value, .headers = {}}));
        killed.wait_all("writing");
    };
    write("gateway/0123456789abcdef", "{}");
    write("call-1", "a repeat, which is none of its business");
    EXPECT_TRUE(becomes(one, 2));
    EXPECT_TRUE(becomes(one, 1));
}

}  // namespace
}  // namespace lorry::consumer
