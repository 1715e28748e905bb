// Where partitions end, for readers of committed records and for all others (the first stop at the oldest transaction that is still open,
// KIP-98's last stable offset), and where records of a time begin. Any thread; included only by consumer/*.cpp that deal with Kafka.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stop_token>

#include "consumer/kafka_connection.h"
#include "schema/job.h"

namespace lorry::consumer {

using EndOffsets = std::map<TopicPartitions::value_type, std::int64_t>;

// One request to each leader; nullopt: told to stop, or not all of them answered within a few seconds.
std::optional<EndOffsets> end_offsets(const KafkaConnection& connection, const TopicPartitions& partitions, rd_kafka_IsolationLevel_t level,
                                      const std::stop_token& stop);

// The first offset whose record is not older than `time`; the largest number where there is none so young. nullopt: the broker did not say
// within a few seconds, or is the embedded one, which cannot.
std::optional<std::int64_t> first_offset_since(const KafkaConnection& connection, const TopicPartitions::value_type& partition,
                                               schema::Timestamp time);

}  // namespace lorry::consumer
