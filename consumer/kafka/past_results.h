// Finds out which jobs have already ended, by reading the results and dead-letter topics. A group's offsets with their metadata are a
// snapshot, and these topics are the log that continues it: the next owner of a partition reads on from the end of the snapshot or, without
// one, from where the result of the oldest open job can be. So no job runs twice even if a broker returns outdated offsets. Used by
// takeover, the transactional committer and group_offsets.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "consumer/commit_metadata.h"
#include "consumer/kafka/connection.h"
#include "consumer/kafka/end_offsets.h"
#include "schema/job.h"
#include "schema/topics.h"

namespace lorry::consumer {

// The topics that hold results and dead letters, as first seen. Writers and readers must agree on the partitions.
struct EndTopics {
    std::int32_t results = 0;  // partitions
    std::int32_t dead_letters = 0;
    schema::TopicIds input_ids;  // of the topics of jobs
};

// Any thread.
class PastResults {
public:
    // `connection` must outlive this. Sends nothing yet.
    PastResults(const KafkaConnection& connection, schema::Topics topics) : connection_(connection), topics_(std::move(topics)) {}

    // Looks the topics up on the first call. Throws KafkaError when the brokers do not answer by deadline_start or a topic is missing.
    EndTopics end_topics();
    // Throws KafkaError when a topic of jobs was deleted and created again since end_topics(), or the brokers do not answer within
    // `deadline`. Returns false when a stop was requested.
    bool check_inputs(std::chrono::milliseconds deadline, const std::stop_token& stop);

    struct Question {
        TopicPartition place;    // of jobs
        std::int64_t first = 0;  // asks about the jobs in [first, end); an empty range reads nothing
        std::int64_t end = 0;
        // Records below these ends are already accounted for; nullopt: none are. An end beyond its log's end belongs to an earlier topic of
        // the same name and is ignored.
        std::optional<EndsSeen> seen;
    };
    struct Answer {
        std::set<std::int64_t> ended;  // jobs in the range that have a committed result or dead letter
        EndsSeen seen;
    };
    // Results of partition p of a topic of jobs are in results partition p mod n (KafkaSink puts them there) and are younger than their
    // jobs. Results for an earlier topic of the same name do not count, if brokers have topic ids. With `patience`, waits for records after
    // an open transaction until nothing has arrived for that long; without it, skips them. Blocks for as long as reading takes. Returns
    // nullopt when a stop was requested. Throws KafkaError when the brokers are away for deadline_later, or `patience` runs out.
    std::optional<std::map<TopicPartition, Answer>> ask(const std::vector<Question>& questions, const std::stop_token& stop,
                                                        std::optional<std::chrono::milliseconds> patience = std::nullopt);

private:
    const KafkaConnection& connection_;
    const schema::Topics topics_;
    std::mutex mutex_;
    std::optional<EndTopics> end_topics_;  // guarded by mutex_
};

}  // namespace lorry::consumer
