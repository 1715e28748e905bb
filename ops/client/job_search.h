// Finds out which jobs and batches are in the jobs topic, to catch mistyped and already used ids. Called by `submit` and `cancel`;
// start_of_batch() also by `tail` and batch_follower.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "consumer/kafka/reader.h"
#include "schema/topics.h"

namespace lorry::ops {

// Where a batch's records may begin in the topics: the time in its id, less a margin for clocks that differ; otherwise the beginning.
consumer::RecordReader::Start start_of_batch(std::string_view batch_id);

struct SoughtJob {
    std::string id;
    bool is_batch = false;  // true: any job of the batch `id`
};
// Returns the `sought` jobs that are not in the jobs topic. Reads until all are found or the topic ends, which can take long for a large
// topic. Throws KafkaError, ending with `advice`, when the topic may not be read or the brokers do not answer.
std::vector<SoughtJob> missing_in_jobs_topic(const consumer::KafkaConfig& config, const schema::Topics& topics,
                                             std::vector<SoughtJob> sought, std::string_view advice);

}  // namespace lorry::ops
