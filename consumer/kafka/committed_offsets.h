// What a consumer group has committed: one request for it, and what the metadata beside an offset says. Included only by consumer/*.cpp
// that deal with Kafka.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "consumer/commit_metadata.h"
#include "consumer/kafka/connection.h"
#include "schema/check.h"

namespace lorry::consumer {

// One request for what the consumer's group has committed for these; `partitions` becomes the answer, with an error for each that has one.
// `stable`: one that an open transaction holds undecided has UNSTABLE_OFFSET_COMMIT (KIP-447). Returns the error of the whole.
rd_kafka_resp_err_t committed_offsets(const KafkaConnection& consumer, PartitionListHandle& partitions, std::chrono::milliseconds timeout,
                                      bool stable = true);
// The same, but returns also the first partition's error that is not `tolerated`.
rd_kafka_resp_err_t committed_offsets_of_all(const KafkaConnection& consumer, PartitionListHandle& partitions,
                                             std::chrono::milliseconds timeout,
                                             rd_kafka_resp_err_t tolerated = RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT, bool stable = true);

// Of a committed offset.
std::string_view metadata_of(const rd_kafka_topic_partition_t& committed);
// As decode_commit_metadata. Throws KafkaError for a newer program's metadata.
Expected<CommitState, CommitMetadataError> committed_state(const std::string& topic, std::int32_t partition, std::int64_t offset,
                                                           std::string_view metadata);

}  // namespace lorry::consumer
