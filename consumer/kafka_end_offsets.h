// Where partitions end, for readers of committed records and for all others: the first stop at the oldest transaction that is still open
// (KIP-98's last stable offset). Included only by consumer/*.cpp that deal with transactions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stop_token>

#include "consumer/kafka_connection.h"

namespace lorry::consumer {

using EndOffsets = std::map<TopicPartitions::value_type, std::int64_t>;

// One request to each leader; nullopt: told to stop, or not all of them answered within a few seconds. Any thread.
std::optional<EndOffsets> end_offsets(const KafkaConnection& connection, const TopicPartitions& partitions, rd_kafka_IsolationLevel_t level,
                                      const std::stop_token& stop);

}  // namespace lorry::consumer
