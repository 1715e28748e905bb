// Calls of librdkafka that no other part of the project makes; see kafka_probe.h.
#include "tests/faults/kafka_probe.h"

#include <array>

#include "consumer/kafka/connection.h"
#include "consumer/kafka/producer.h"

namespace lorry::faults {
namespace {

using consumer::KafkaConnection;

constexpr int request_timeout_ms = 5'000;

bool succeeded(rd_kafka_error_t* error) {
    const consumer::ErrorHandle owned(error);
    return error == nullptr;
}

consumer::PartitionListHandle partitions_of(const KafkaConnection& connection, const std::string& topic) {
    return consumer::list_of(consumer::partitions_of(topic, connection.required_partition_count(topic)));
}

}  // namespace

void produce_all(const consumer::KafkaConfig& config, const std::string& topic, std::span<const schema::JobRecord> records) {
    std::optional<rd_kafka_resp_err_t> refused;
    consumer::KafkaProducer producer(config, {.on_delivery = [&](const consumer::KafkaProducer::Delivery& delivery) {
                                         if (delivery.error != RD_KAFKA_RESP_ERR_NO_ERROR) refused = delivery.error;
                                     }});
    for (const schema::JobRecord& record : records) {
        const auto sent =
            producer.send({.topic = topic, .partition = std::nullopt, .key = record.key, .value = record.value, .headers = record.headers});
        if (!sent) refused = sent.error();
        producer.poll(std::chrono::milliseconds(0));
    }
    producer.wait_all("producing jobs");
    if (refused) throw consumer::KafkaError(topic + ": a record was refused: " + rd_kafka_err2str(*refused));
}

std::optional<std::vector<CommittedOffset>> committed_offsets(const consumer::KafkaConfig& config, const std::string& group,
                                                              const std::string& topic, OffsetView view) {
    const char* isolation = view == OffsetView::settled ? "read_committed" : "read_uncommitted";
    const KafkaConnection connection(config, KafkaConnection::Kind::consumer, {{"group.id", group}, {"isolation.level", isolation}});
    const auto list = partitions_of(connection, topic);
    if (rd_kafka_committed(connection.handle(), list.get(), request_timeout_ms) != RD_KAFKA_RESP_ERR_NO_ERROR) return std::nullopt;
    std::vector<CommittedOffset> commits;
    for (int i = 0; i < list->cnt; ++i) {
        const rd_kafka_topic_partition_t& place = list->elems[i];
        if (place.err != RD_KAFKA_RESP_ERR_NO_ERROR) return std::nullopt;
        if (place.offset < 0) continue;
        commits.push_back({place.partition, place.offset, std::string(static_cast<const char*>(place.metadata), place.metadata_size)});
    }
    return commits;
}

std::optional<std::vector<PartitionEnd>> partition_ends(const consumer::KafkaConfig& config, const std::vector<std::string>& topics) {
    const KafkaConnection committed(config, KafkaConnection::Kind::consumer, {{"isolation.level", "read_committed"}});
    const KafkaConnection all(config, KafkaConnection::Kind::consumer, {{"isolation.level", "read_uncommitted"}});
    std::vector<PartitionEnd> ends;
    for (const std::string& topic : topics) {
        for (std::int32_t i = 0; i < committed.required_partition_count(topic); ++i) {
            const auto one = committed.try_watermarks(topic, i);
            const auto other = all.try_watermarks(topic, i);
            if (!one || !other) return std::nullopt;
            ends.push_back({.topic = topic, .partition = i, .committed = one->end, .all = other->end});
        }
    }
    return ends;
}

std::optional<int> group_coordinator(const consumer::KafkaConfig& config, const std::string& group) {
    const KafkaConnection connection(config, KafkaConnection::Kind::producer, {});
    const consumer::QueueHandle queue(rd_kafka_queue_new(connection.handle()));
    const char* name = group.c_str();
    rd_kafka_DescribeConsumerGroups(connection.handle(), &name, 1, nullptr, queue.get());
    const consumer::EventHandle event(rd_kafka_queue_poll(queue.get(), request_timeout_ms));
    if (!event || rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR) return std::nullopt;
    std::size_t count = 0;
    const auto* const* groups =
        rd_kafka_DescribeConsumerGroups_result_groups(rd_kafka_event_DescribeConsumerGroups_result(event.get()), &count);
    if (count != 1 || rd_kafka_ConsumerGroupDescription_error(groups[0]) != nullptr) return std::nullopt;
    const rd_kafka_Node_t* node = rd_kafka_ConsumerGroupDescription_coordinator(groups[0]);
    return node == nullptr ? std::nullopt : std::optional(rd_kafka_Node_id(node));
}

std::optional<int> transaction_coordinator(const consumer::KafkaConfig& config, const std::string& transactional_id) {
    const KafkaConnection connection(config, KafkaConnection::Kind::producer, {});
    const consumer::MetadataHandle found = connection.metadata("__transaction_state");
    const rd_kafka_metadata_topic& log = found->topics[0];
    if (log.err != RD_KAFKA_RESP_ERR_NO_ERROR || log.partition_cnt == 0) return std::nullopt;
    // As TransactionStateManager.partitionFor: the absolute value of Java's String.hashCode, with the smallest integer taken as 0.
    std::uint32_t hash = 0;
    for (const char letter : transactional_id) hash = 31 * hash + static_cast<unsigned char>(letter);
    if (hash == 1U << 31) hash = 0;
    if (hash > 1U << 31) hash = -hash;
    const auto partition = static_cast<std::int32_t>(hash % static_cast<std::uint32_t>(log.partition_cnt));
    for (int i = 0; i < log.partition_cnt; ++i) {
        if (log.partitions[i].id == partition && log.partitions[i].leader >= 0) return log.partitions[i].leader;
    }
    return std::nullopt;
}

bool elect_preferred_leaders(const consumer::KafkaConfig& config) {
    const KafkaConnection connection(config, KafkaConnection::Kind::producer, {});
    const consumer::QueueHandle queue(rd_kafka_queue_new(connection.handle()));
    rd_kafka_ElectLeaders_t* all = rd_kafka_ElectLeaders_new(RD_KAFKA_ELECTION_TYPE_PREFERRED, nullptr);
    rd_kafka_ElectLeaders(connection.handle(), all, nullptr, queue.get());
    rd_kafka_ElectLeaders_destroy(all);
    const consumer::EventHandle event(rd_kafka_queue_poll(queue.get(), 2 * request_timeout_ms));
    return event && rd_kafka_event_error(event.get()) == RD_KAFKA_RESP_ERR_NO_ERROR;
}

bool hijack(const consumer::KafkaConfig& config, const std::string& transactional_id) {
    const KafkaConnection connection(config, KafkaConnection::Kind::producer, {{"transactional.id", transactional_id}});
    return succeeded(rd_kafka_init_transactions(connection.handle(), 2 * request_timeout_ms));
}

bool delete_offsets(const consumer::KafkaConfig& config, const std::string& group, const std::string& topic) {
    const KafkaConnection connection(config, KafkaConnection::Kind::producer, {});
    const auto list = partitions_of(connection, topic);
    const std::unique_ptr<rd_kafka_DeleteConsumerGroupOffsets_t, schema::Deleter<rd_kafka_DeleteConsumerGroupOffsets_destroy>> request(
        rd_kafka_DeleteConsumerGroupOffsets_new(group.c_str(), list.get()));
    const consumer::QueueHandle queue(rd_kafka_queue_new(connection.handle()));
    std::array requests = {request.get()};
    rd_kafka_DeleteConsumerGroupOffsets(connection.handle(), requests.data(), requests.size(), nullptr, queue.get());
    const consumer::EventHandle event(rd_kafka_queue_poll(queue.get(), 2 * request_timeout_ms));
    if (!event || rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR) return false;
    std::size_t count = 0;
    const auto* const* groups =
        rd_kafka_DeleteConsumerGroupOffsets_result_groups(rd_kafka_event_DeleteConsumerGroupOffsets_result(event.get()), &count);
    if (count != 1 || rd_kafka_group_result_error(groups[0]) != nullptr) return false;
    const rd_kafka_topic_partition_list_t* answered = rd_kafka_group_result_partitions(groups[0]);
    for (int i = 0; answered != nullptr && i < answered->cnt; ++i) {
        if (answered->elems[i].err != RD_KAFKA_RESP_ERR_NO_ERROR) return false;
    }
    return true;
}

bool delete_topic(const consumer::KafkaConfig& config, const std::string& topic) {
    const KafkaConnection connection(config, KafkaConnection::Kind::producer, {});
    const std::unique_ptr<rd_kafka_DeleteTopic_t, schema::Deleter<rd_kafka_DeleteTopic_destroy>> request(
        rd_kafka_DeleteTopic_new(topic.c_str()));
    const consumer::QueueHandle queue(rd_kafka_queue_new(connection.handle()));
    std::array requests = {request.get()};
    rd_kafka_DeleteTopics(connection.handle(), requests.data(), requests.size(), nullptr, queue.get());
    const consumer::EventHandle event(rd_kafka_queue_poll(queue.get(), 2 * request_timeout_ms));
    return event && rd_kafka_event_error(event.get()) == RD_KAFKA_RESP_ERR_NO_ERROR;
}

}  // namespace lorry::faults
