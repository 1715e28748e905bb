// Which jobs have ended already, by what stands in the results and dead-letter topics. A group's offsets with their metadata are a
// snapshot, these topics are the log behind it: whoever takes a partition over reads on from where the snapshot ends, or, where there is
// none, from where the oldest open job's result can be. So also offsets that a broker gives out too old make no job run twice.
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

// Where ends of jobs stand, as the topics were when first looked at: whoever writes and whoever reads must mean the same partitions.
struct EndTopics {
    std::int32_t results = 0;  // partitions
    std::int32_t dead_letters = 0;
    std::string jobs_id;  // the jobs topic's id; empty where brokers have none
};

// Any thread.
class PastResults {
public:
    // `connection` must outlive this. Asks nothing yet.
    PastResults(const KafkaConnection& connection, schema::Topics topics) : connection_(connection), topics_(std::move(topics)) {}

    // Throws KafkaError when the brokers do not answer by deadline_start or a topic is missing.
    EndTopics end_topics();
    // Throws KafkaError when the jobs topic is by now another one of that name than end_topics() says, or the brokers do not answer until
    // `deadline` has passed. False: told to stop.
    bool check_jobs_topic(std::chrono::milliseconds deadline, const std::stop_token& stop);

    struct Question {
        std::int32_t partition = 0;  // of the jobs topic
        std::int64_t first = 0;      // of jobs in [first, end); where that is empty, nothing is read
        std::int64_t end = 0;
        // What ended below is known; nullopt: nothing is. A mark beyond its log's end is about an earlier topic of that name: it does not
        // count.
        std::optional<EndsSeen> seen;
    };
    struct Answer {
        std::set<std::int64_t> ended;  // jobs of the range that have a committed result or dead letter by now
        EndsSeen seen;
    };
    // Results of job partition p are in results partition p mod n (KafkaSink puts them there), and are younger than their jobs. A result of
    // an earlier topic of the same name does not count, where brokers tell topics apart by ids. What lies behind an open transaction is
    // waited for until nothing has come for as long as `patience` says, else left out. Blocks for as long as reading takes.
    // nullopt: told to stop. Throws KafkaError when the brokers are away for deadline_later, or patience ends.
    std::optional<std::map<std::int32_t, Answer>> ask(const std::vector<Question>& questions, const std::stop_token& stop,
                                                      std::optional<std::chrono::milliseconds> patience = std::nullopt);

private:
    const KafkaConnection& connection_;
    const schema::Topics topics_;
    std::mutex mutex_;
    std::optional<EndTopics> end_topics_;  // guarded by mutex_
};

}  // namespace lorry::consumer
