// A real Apache Kafka for tests with the label real_kafka: ctest starts a broker (`ops/kafka`), and LORRY_KAFKA_ADDRESS_FILE names the file
// with its address. Each test has topics under its own prefix.
#pragma once

#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "consumer/kafka/admin.h"
#include "tests/support/kafka_fixture.h"
#include "tests/support/real_broker.h"

namespace lorry::consumer {

inline std::string id_of(const Delivery& job) { return std::get<schema::Completion>(completed(job).record).custom_id; }

class RealKafka : public ::testing::Test {
protected:
    static constexpr int partitions = 4;
    static constexpr std::size_t inputs = 2 * partitions;  // of jobs and of calls
    KafkaConfig config{.brokers = "", .passthrough = {}, .deadline_start = 30s, .deadline_later = 60s};
    schema::Topics topics;
    RecordingHandler handler;

    void SetUp() override {
        const auto broker = tests::real_broker();
        if (!broker) GTEST_SKIP() << tests::no_real_broker;
        config.brokers = broker->address;
        topics.prefix = fmt::format("t{}-{}", ::getpid(), std::chrono::system_clock::now().time_since_epoch().count() % 1'000'000'000);
        for (const auto& outcome : create_topics(config, specs())) ASSERT_EQ(outcome.kind, TopicOutcome::Kind::created) << outcome.name;
    }
    std::vector<schema::TopicSpec> specs() const { return schema::topic_specs(topics, {.partitions = partitions}); }
    KafkaMember::Options member_options(const std::string& name) const {
        return {.topics = topics,
                .group = topics.prefix,
                .member = name,
                .session_timeout = 10s,
                .drain_budget = 1s,
                .careful_starts = {.jobs = 0}};
    }
};

}  // namespace lorry::consumer
