// A consumer whose partitions are paused.
#include "consumer/kafka/batches/batch_group.h"

#include <fmt/format.h>

namespace lorry::consumer {
namespace {

KafkaSettings group_settings_of(const std::string& group) {
    return {{"group.id", group},
            {"enable.auto.commit", "false"},
            {"enable.auto.offset.store", "false"},
            {"allow.auto.create.topics", "false"},
            {"auto.offset.reset", "latest"},
            {"partition.assignment.strategy", "cooperative-sticky"},
            {"session.timeout.ms", "10000"},
            {"heartbeat.interval.ms", "2500"}};
}

}  // namespace

BatchGroup::BatchGroup(const KafkaConfig& config, const std::string& group, const std::string& topic)
    : connection_(
          config, KafkaConnection::Kind::consumer, group_settings_of(group),
          [](rd_kafka_conf_t* conf) { rd_kafka_conf_set_rebalance_cb(conf, on_rebalance); }, this) {
    connection_.required_partition_count(topic);
    rd_kafka_poll_set_consumer(connection_.handle());
    const PartitionListHandle topics(rd_kafka_topic_partition_list_new(1));
    rd_kafka_topic_partition_list_add(topics.get(), topic.c_str(), RD_KAFKA_PARTITION_UA);
    if (const auto error = rd_kafka_subscribe(connection_.handle(), topics.get()); error != RD_KAFKA_RESP_ERR_NO_ERROR)
        throw KafkaError(fmt::format("Kafka at {}: subscribing to {}: {}", config.brokers, topic, rd_kafka_err2str(error)));
}

BatchGroup::~BatchGroup() { rd_kafka_consumer_close(connection_.handle()); }

// Called from C, within rd_kafka_consumer_poll and rd_kafka_consumer_close.
void BatchGroup::on_rebalance(rd_kafka_t* client, rd_kafka_resp_err_t error, rd_kafka_topic_partition_list_t* list, void* opaque) {
    auto* self = static_cast<BatchGroup*>(static_cast<KafkaContext*>(opaque)->owner);
    const bool is_assign = error == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    for (int i = 0; i < list->cnt; ++i) {
        if (is_assign)
            self->partitions_.insert(list->elems[i].partition);
        else
            self->partitions_.erase(list->elems[i].partition);
    }
    if (is_assign) {
        const ErrorHandle ignored(rd_kafka_incremental_assign(client, list));
        rd_kafka_pause_partitions(client, list);
    } else if (error == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS) {
        const ErrorHandle ignored(rd_kafka_incremental_unassign(client, list));
    } else {
        self->partitions_.clear();
        rd_kafka_assign(client, nullptr);
        self->connection_.complaints().note(rd_kafka_err2str(error));
    }
}

void BatchGroup::poll(std::chrono::milliseconds timeout) {
    // Partitions are paused: mostly these are errors, which the client tries again.
    const MessageHandle message(rd_kafka_consumer_poll(connection_.handle(), static_cast<int>(timeout.count())));
    if (message && message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        if (is_configuration_error(message->err)) throw connection_.refused("sharing batches between gateways", message->err, "");
        connection_.complaints().note(rd_kafka_message_errstr(message.get()));
    }
    connection_.check_fatal();
    connection_.check_reachable();
}

}  // namespace lorry::consumer
