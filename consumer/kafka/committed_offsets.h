// Requests what a consumer group has committed and decodes the metadata beside an offset. Used by group_offsets, takeover and leftovers.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "consumer/commit_metadata.h"
#include "consumer/kafka/connection.h"
#include "schema/check.h"

namespace lorry::consumer {

// Sends one request for the offsets that the consumer's group has committed for `partitions`, and replaces `partitions` by the answer, with
// an error for each partition that has one. With `stable`, a partition whose offset an open transaction holds undecided has the error
// UNSTABLE_OFFSET_COMMIT (KIP-447). Returns the error of the request as a whole.
rd_kafka_resp_err_t committed_offsets(const KafkaConnection& consumer, PartitionListHandle& partitions, std::chrono::milliseconds timeout,
                                      bool stable = true);
// Like committed_offsets(), but also returns the first partition's error other than `tolerated`.
rd_kafka_resp_err_t committed_offsets_of_all(const KafkaConnection& consumer, PartitionListHandle& partitions,
                                             std::chrono::milliseconds timeout,
                                             rd_kafka_resp_err_t tolerated = RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT, bool stable = true);

// The metadata of a committed offset.
std::string_view metadata_of(const rd_kafka_topic_partition_t& committed);
// Like decode_commit_metadata(). Throws KafkaError when the metadata was written by a newer program.
Expected<CommitState, CommitMetadataError> committed_state(const std::string& topic, std::int32_t partition, std::int64_t offset,
                                                           std::string_view metadata);

}  // namespace lorry::consumer
