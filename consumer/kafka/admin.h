// Creates topics and describes the cluster. Called by `lorry topics create`, `submit` and `collect`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "consumer/kafka/config.h"
#include "schema/topics.h"

namespace lorry::consumer {

struct ClusterInfo {
    std::string id;
    int brokers = 0;
    bool embedded = false;  // it is `lorry broker`, which keeps nothing and ignores topic settings
};
// Throws KafkaError when the brokers do not answer by deadline_start.
ClusterInfo describe_cluster(const KafkaConfig& config);

struct TopicOutcome {
    enum class Kind : std::uint8_t { created, exists };
    std::string name;
    Kind kind = Kind::created;
    std::vector<std::string> differences;  // of an existing topic from the requested one, readable; nothing is changed
};
// Creates the missing topics. For the first that cannot be created, throws a KafkaError with the topic and the reason. The embedded broker
// creates topics with four partitions and no settings unless it was started with them, so only the number of partitions is compared there.
std::vector<TopicOutcome> create_topics(const KafkaConfig& config, const std::vector<schema::TopicSpec>& specs);

}  // namespace lorry::consumer
