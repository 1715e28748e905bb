// Creating topics and asking a cluster who it is. Called by `lorry topics create` and the ledger.
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
    bool embedded = false;  // `lorry broker`: keeps nothing, takes no topic settings
};
// Throws KafkaError when the brokers do not answer by deadline_start.
ClusterInfo describe_cluster(const KafkaConfig& config);

struct TopicOutcome {
    enum class Kind : std::uint8_t { created, exists };
    std::string name;
    Kind kind = Kind::created;
    std::vector<std::string> differences;  // of an existing topic from what was asked for, readable; nothing is changed
};
// Creates what is missing. Throws KafkaError that names the topic and the reason for the first that cannot be created. The embedded broker
// makes topics its own way, of four partitions and without settings, unless it was started with them; only partitions are compared there.
std::vector<TopicOutcome> create_topics(const KafkaConfig& config, const std::vector<schema::TopicSpec>& specs);

}  // namespace lorry::consumer
