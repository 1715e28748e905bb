// Which jobs and batches are in the jobs topic: what a mistyped or used id is told by. Called by `submit` and `cancel`.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "consumer/kafka/reader.h"
#include "schema/topics.h"

namespace lorry::ops {

// Where in the topics a batch's records may begin: the time in its id, with room for clocks that differ; else the beginning.
consumer::RecordReader::Start start_of_batch(std::string_view batch_id);

struct SoughtJob {
    std::string id;
    bool is_batch = false;  // any job of the batch `id`
};
// Those of them that the topic does not have. Reads until all were found or to the topic's end, which of a large topic takes its time.
// nullopt: stopped. Throws KafkaError, with the advice at its end, when the topic may not be read or the brokers do not answer.
std::optional<std::vector<SoughtJob>> missing_in_jobs_topic(const consumer::KafkaConfig& config, const schema::Topics& topics,
                                                            std::vector<SoughtJob> sought, std::string_view advice,
                                                            const std::atomic<bool>& stop);

}  // namespace lorry::ops
