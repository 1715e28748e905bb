// Creates topics through the admin API.
#include "consumer/kafka/admin.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <utility>

#include "consumer/kafka/connection.h"

namespace lorry::consumer {

namespace {

constexpr int operation_timeout_ms = 30'000;

std::vector<std::string> differences_of(const KafkaConnection& connection, const schema::TopicSpec& spec, std::int32_t partitions,
                                        bool embedded) {
    std::vector<std::string> differences;
    if (partitions != spec.partitions) differences.push_back(fmt::format("partitions is {}, not {}", partitions, spec.partitions));
    const auto settings = embedded ? std::map<std::string, std::string>() : connection.topic_settings(spec.name);
    for (const auto& [key, wanted] : spec.config) {
        const auto found = settings.find(key);
        if (found != settings.end() && found->second != wanted) {
            differences.push_back(fmt::format("{} is {}, not {}", key, found->second, wanted));
        }
    }
    return differences;
}

// Returns false if the topic already exists.
bool create(const KafkaConnection& connection, const schema::TopicSpec& spec) {
    std::array<char, 512> problem{};
    const auto refused = [&](std::string_view reason) {
        return KafkaError(fmt::format("Kafka at {}: topic {} cannot be created: {}", connection.config().brokers, spec.name, reason));
    };
    const NewTopicHandle topic(rd_kafka_NewTopic_new(spec.name.c_str(), spec.partitions, spec.replication, problem.data(), problem.size()));
    if (!topic) throw refused(problem.data());
    for (const auto& [key, value] : spec.config) rd_kafka_NewTopic_set_config(topic.get(), key.c_str(), value.c_str());
    const AdminOptionsHandle options(rd_kafka_AdminOptions_new(connection.handle(), RD_KAFKA_ADMIN_OP_CREATETOPICS));
    rd_kafka_AdminOptions_set_operation_timeout(options.get(), operation_timeout_ms, problem.data(), problem.size());
    const QueueHandle queue(rd_kafka_queue_new(connection.handle()));
    rd_kafka_NewTopic_t* topics[] = {topic.get()};
    rd_kafka_CreateTopics(connection.handle(), topics, 1, options.get(), queue.get());
    const EventHandle event(rd_kafka_queue_poll(queue.get(), 2 * operation_timeout_ms));
    if (!event) throw connection.away("creating topic " + spec.name, std::chrono::milliseconds(2 * operation_timeout_ms));
    if (rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR) throw refused(rd_kafka_event_error_string(event.get()));
    std::size_t count = 0;
    const auto* const* results = rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event.get()), &count);
    CHECK(count == 1, "one topic was asked for");
    const auto error = rd_kafka_topic_result_error(results[0]);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return true;
    if (error == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS) return false;
    const char* text = rd_kafka_topic_result_error_string(results[0]);
    throw refused(fmt::format("{}{}", text != nullptr ? text : rd_kafka_err2str(error), advice_for(error, spec.name)));
}

}  // namespace

ClusterInfo describe_cluster(const KafkaConfig& config) {
    const KafkaConnection connection(config, KafkaConnection::Kind::producer, {});
    ClusterInfo info;
    info.brokers = connection.metadata({})->broker_cnt;
    info.id = connection.cluster_id();
    info.embedded = is_embedded_cluster(info.id);
    return info;
}

std::vector<TopicOutcome> create_topics(const KafkaConfig& config, const std::vector<schema::TopicSpec>& specs) {
    // The embedded broker has no request for creating topics, but creates any topic that its clients ask about.
    const bool embedded = describe_cluster(config).embedded;
    const KafkaConnection connection(config, KafkaConnection::Kind::producer, {{"allow.auto.create.topics", embedded ? "true" : "false"}});
    std::vector<TopicOutcome> outcomes;
    for (const schema::TopicSpec& spec : specs) {
        TopicOutcome outcome{.name = spec.name, .kind = TopicOutcome::Kind::exists, .differences = {}};
        if (!connection.partition_count(spec.name) && create(connection, spec)) outcome.kind = TopicOutcome::Kind::created;
        const std::int32_t partitions = connection.wait_for_topic(spec.name);
        if (outcome.kind == TopicOutcome::Kind::exists) outcome.differences = differences_of(connection, spec, partitions, embedded);
        outcomes.push_back(std::move(outcome));
    }
    return outcomes;
}

}  // namespace lorry::consumer
