// Asks brokers where partitions end, for readers of committed records (who stop at the oldest open transaction, KIP-98's last stable
// offset) and for all others, and where the records of a given time begin. Used by leftovers, past_results, stable_offsets and reader. Any
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <stop_token>
#include <string>

#include "consumer/kafka/connection.h"
#include "consumer/kafka/times.h"
#include "schema/check.h"
#include "schema/job.h"

namespace lorry::consumer {

using EndOffsets = std::map<TopicPartitions::value_type, std::int64_t>;

// Why the end offsets are unknown: the first error, and the topic it is about.
struct NoEndOffsets {
    rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
    std::string topic;
};
// Sends one request to each leader. If one of them does not answer within `limit`, or a stop is requested, the error is _TIMED_OUT.
Expected<EndOffsets, NoEndOffsets> end_offsets(const KafkaConnection& connection, const TopicPartitions& partitions,
                                               rd_kafka_IsolationLevel_t level, const std::stop_token& stop,
                                               std::chrono::milliseconds limit = 2 * request_timeout);
// Repeats the request until it succeeds. Returns nullopt when a stop was requested. Throws KafkaError after the deadline, and at once for
// an error that only an operator can fix.
std::optional<EndOffsets> wait_for_end_offsets(const KafkaConnection& connection, const TopicPartitions& partitions,
                                               rd_kafka_IsolationLevel_t level, std::chrono::milliseconds deadline,
                                               const std::stop_token& stop);

// The first offset whose record is not older than `time`; the largest number if all records are older. nullopt when the broker did not
// answer within a few seconds, or is the embedded one, which does not support this.
std::optional<std::int64_t> first_offset_since(const KafkaConnection& connection, const TopicPartitions::value_type& partition,
                                               schema::Timestamp time);

}  // namespace lorry::consumer
