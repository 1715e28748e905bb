// Where partitions end, for readers of committed records and for all others (the first stop at the oldest transaction that is still open,
// KIP-98's last stable offset), and where records of a time begin. Any thread; included only by consumer/*.cpp that deal with Kafka.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <stop_token>
#include <string>

#include "consumer/kafka/connection.h"
#include "schema/check.h"
#include "schema/job.h"

namespace lorry::consumer {

using EndOffsets = std::map<TopicPartitions::value_type, std::int64_t>;

// Why there are none: the first error, and the topic that it is about.
struct NoEndOffsets {
    rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
    std::string topic;
};
// One request to each leader. Without an answer from all of them within a few seconds, or told to stop, that is _TIMED_OUT.
Expected<EndOffsets, NoEndOffsets> end_offsets(const KafkaConnection& connection, const TopicPartitions& partitions,
                                               rd_kafka_IsolationLevel_t level, const std::stop_token& stop);
// Asks until they are there. nullopt: told to stop. Throws KafkaError after the deadline, and when somebody has to change something.
std::optional<EndOffsets> wait_for_end_offsets(const KafkaConnection& connection, const TopicPartitions& partitions,
                                               rd_kafka_IsolationLevel_t level, std::chrono::milliseconds deadline,
                                               const std::stop_token& stop);

// The first offset whose record is not older than `time`; the largest number where there is none so young. nullopt: the broker did not say
// within a few seconds, or is the embedded one, which cannot.
std::optional<std::int64_t> first_offset_since(const KafkaConnection& connection, const TopicPartitions::value_type& partition,
                                               schema::Timestamp time);

}  // namespace lorry::consumer
