// Which partitions of the batches topic are this gateway's: membership in the group of gateways. Records are read elsewhere. Used by
// batch_owner.cpp; one thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "consumer/kafka/connection.h"

namespace lorry::consumer {

class BatchGroup {
public:
    // Throws KafkaError when the brokers do not answer by deadline_start.
    BatchGroup(const KafkaConfig& config, const std::string& group, const std::string& topic);
    // Leaves the group, so that others take over at once.
    ~BatchGroup();
    BatchGroup(const BatchGroup&) = delete;
    BatchGroup& operator=(const BatchGroup&) = delete;

    // Call it often: it serves the group. A partition that is gone belongs to another gateway at once.
    void poll(std::chrono::milliseconds timeout);
    const std::set<std::int32_t>& partitions() const { return partitions_; }

private:
    static void on_rebalance(rd_kafka_t* client, rd_kafka_resp_err_t error, rd_kafka_topic_partition_list_t* list, void* opaque);

    std::set<std::int32_t> partitions_;
    KafkaConnection connection_;  // last: its callbacks write to the members above
};

}  // namespace lorry::consumer
