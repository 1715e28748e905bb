// Topics: their settings and the rights to use them.
#include "schema/topics.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lorry::schema {
namespace {

using ::testing::Contains;

std::string described(const TopicSpec& spec) {
    std::string text = fmt::format("{} x{} r{}", spec.name, spec.partitions, spec.replication);
    for (const auto& [key, value] : spec.config) text += fmt::format(" {}={}", key, value);
    return text;
}

TEST(TopicsTest, SpecsOfAClusterOfThreeBrokers) {
    std::string all;
    for (const TopicSpec& spec : topic_specs({.prefix = "tiny"}, {.partitions = 6, .brokers = 5, .retention = std::chrono::hours(48)})) {
        all += described(spec) + "\n";
    }
    EXPECT_EQ(all,
              "tiny.jobs x6 r3 cleanup.policy=delete max.message.bytes=16777216 min.insync.replicas=2 retention.ms=172800000\n"
              "tiny.calls x6 r3 cleanup.policy=delete max.message.bytes=16777216 min.insync.replicas=2 retention.ms=86400000\n"
              "tiny.results x6 r3 cleanup.policy=delete max.message.bytes=16777216 min.insync.replicas=2 retention.ms=172800000\n"
              "tiny.chunks x6 r3 cleanup.policy=delete max.message.bytes=1048576 min.insync.replicas=2 retention.ms=86400000\n"
              "tiny.status x6 r3 cleanup.policy=delete max.message.bytes=1048576 min.insync.replicas=2 retention.ms=172800000\n"
              "tiny.dlq x1 r3 cleanup.policy=delete max.message.bytes=16842752 min.insync.replicas=2 retention.ms=691200000\n"
              "tiny.adapters x1 r3 cleanup.policy=compact max.message.bytes=1048576 min.insync.replicas=2\n"
              "tiny.control x1 r3 cleanup.policy=delete max.message.bytes=1048576 min.insync.replicas=2 retention.ms=259200000\n"
              "tiny.keys x1 r3 cleanup.policy=compact max.message.bytes=1048576 min.insync.replicas=2\n"
              "tiny.files x1 r3 cleanup.policy=compact max.message.bytes=1048576 min.insync.replicas=2\n"
              "tiny.batches x8 r3 cleanup.policy=compact max.message.bytes=1048576 min.insync.replicas=2\n"
              "tiny.repeats x1 r3 cleanup.policy=compact,delete max.message.bytes=1048576 min.insync.replicas=2 retention.ms=86400000\n");
}

TEST(TopicsTest, FewerBrokersGetFewerReplicasAndNoInSyncDemand) {
    for (const int brokers : {1, 2}) {
        for (const TopicSpec& spec : topic_specs({}, {.brokers = brokers})) {
            EXPECT_EQ(spec.replication, brokers) << spec.name;
            EXPECT_EQ(spec.config.at("min.insync.replicas"), "1") << spec.name;
        }
    }
}

TEST(TopicsTest, AclsGiveEachRoleWhatItNeedsAndNoMore) {
    const auto lines = acl_lines({.prefix = "tiny"}, {.group = "tiny-lm", .bootstrap = "b:9092"});
    const std::string start = "kafka-acls --bootstrap-server b:9092 --add --allow-principal ";
    EXPECT_THAT(lines, Contains(start + "'User:producer' --operation Read --operation Write --operation Describe --topic 'tiny.jobs'"));
    EXPECT_THAT(lines, Contains(start + "'User:worker' --operation Read --operation Describe --topic 'tiny.jobs' --topic 'tiny.calls' "
                                        "--topic 'tiny.adapters' --topic 'tiny.control' --topic 'tiny.results' --topic 'tiny.dlq' "
                                        "--topic 'tiny.status'"));
    EXPECT_THAT(lines, Contains(start + "'User:gateway' --operation Write --operation Describe --topic 'tiny.jobs' --topic 'tiny.calls' "
                                        "--topic 'tiny.control'"));
    EXPECT_THAT(lines, Contains(start + "'User:gateway' --operation Read --operation Write --operation Describe --topic 'tiny.files' "
                                        "--topic 'tiny.batches'"));
    EXPECT_THAT(lines, Contains(start + "'User:gateway' --operation Read --operation Describe --group 'tiny/gateways'"));
    EXPECT_THAT(lines, Contains(start + "'User:gateway' --operation Write --operation Describe --transactional-id 'tiny/gateways/' "
                                        "--resource-pattern-type prefixed"));
    EXPECT_THAT(lines, Contains(start + "'User:gateway' --operation Read --operation Describe --topic 'tiny.results' --topic "
                                        "'tiny.chunks' --topic 'tiny.status' --topic 'tiny.adapters' --topic 'tiny.keys'"));
    EXPECT_THAT(lines, Contains(start + "'User:gateway' --operation Read --operation Write --operation Describe --topic 'tiny.repeats'"));
    EXPECT_THAT(lines, Contains(start + "'User:worker' --operation Read --operation Describe --group 'tiny-lm'"));
    EXPECT_THAT(lines, Contains(start + "'User:worker' --operation Write --operation Describe --transactional-id 'tiny/tiny-lm/' "
                                        "--resource-pattern-type prefixed"));
    EXPECT_THAT(lines, Contains(start + "'User:worker' --operation Write --operation Describe --operation DescribeConfigs --topic "
                                        "'tiny.results' --topic 'tiny.chunks' --topic 'tiny.status' --topic 'tiny.dlq'"));
    EXPECT_THAT(lines,
                Contains(start + "'User:administrator' --operation Read --operation Describe --topic 'tiny.jobs' --topic 'tiny.calls'"));
    EXPECT_THAT(lines, Contains(start + "'User:administrator' --operation Read --operation Write --operation Describe --topic "
                                        "'tiny.adapters' --topic 'tiny.keys'"));
    EXPECT_THAT(lines, Contains(start + "'User:administrator' --operation Read --operation Describe --group 'tiny-lm'"));
    EXPECT_THAT(lines, Contains(start + "'User:administrator' --operation Write --topic 'tiny.dlq'"));
    EXPECT_THAT(lines, Contains(start + "'User:administrator' --operation Write --operation Describe --transactional-id 'tiny/tiny-lm'"));
    EXPECT_THAT(lines,
                Contains(start + "'User:reader' --operation Read --operation Describe --group 'tiny-' --resource-pattern-type prefixed"));
    for (const std::string& line : lines) {
        const bool writes = line.find("Write") != line.npos;
        EXPECT_FALSE(writes && line.find("User:reader") != line.npos) << line;
        const bool names_keys = line.find("tiny.keys") != line.npos;
        EXPECT_FALSE(names_keys && line.find("User:gateway") == line.npos && line.find("User:administrator") == line.npos) << line;
        EXPECT_FALSE(names_keys && writes && line.find("User:gateway") != line.npos) << line;
        EXPECT_FALSE(writes && line.find("User:worker") != line.npos && line.find("tiny.jobs") != line.npos) << line;
        const bool names_stored = line.find("tiny.files") != line.npos || line.find("tiny.batches") != line.npos;
        EXPECT_FALSE(names_stored && line.find("User:gateway") == line.npos) << line;
    }
}

}  // namespace
}  // namespace lorry::schema
