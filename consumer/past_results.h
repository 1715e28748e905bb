// Which jobs have ended already, by what stands in the results and dead-letter topics: asked at a take-over where the group's offsets do
// not say it (none, reset by an administrator, or unreadable). Blocks for as long as reading takes; used on the take-over's thread.
#pragma once

#include <cstdint>
#include <set>
#include <stop_token>

#include "consumer/kafka_config.h"
#include "schema/topics.h"

namespace lorry::consumer {

// Offsets from `first` on of that partition of the jobs topic whose result or dead letter was committed by now. Results of job partition p
// are in results partition p mod n (KafkaSink puts them there), and are younger than their jobs. A result of an earlier topic of the same
// name does not count, where brokers tell topics apart by ids. Throws KafkaError when the brokers are away for deadline_later.
std::set<std::int64_t> ended_jobs(const KafkaConfig& config, const schema::Topics& topics, std::int32_t partition, std::int64_t first,
                                  const std::stop_token& stop);

}  // namespace lorry::consumer
