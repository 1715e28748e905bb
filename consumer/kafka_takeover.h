// Finds out where partitions go on that came to this member: their committed offsets and metadata against what the log still holds. Asks
// on a thread of its own, so that the poll loop keeps the member in the group; used by KafkaSource only.
#pragma once

#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "consumer/commit_metadata.h"
#include "consumer/kafka_connection.h"

namespace lorry::consumer {

struct TakenOver {
    std::string topic;
    std::int32_t partition = 0;
    CommitState state;       // what is finished already
    std::int64_t start = 0;  // where to read from
    std::int64_t first = 0;  // the log's start and end
    std::int64_t end = 0;
    std::int64_t lost = 0;  // offsets that retention deleted before they were finished, at most
};

class TakeOver {
public:
    // Both refer to partitions of `consumer`'s group; `consumer` must outlive this.
    explicit TakeOver(KafkaConnection& consumer) : consumer_(consumer) {}

    using Partitions = std::vector<std::pair<std::string, std::int32_t>>;
    // Starts asking. A time-out is asked again, never taken for "no offset".
    void start(Partitions partitions);
    bool is_running() const { return thread_.joinable(); }
    // The answer once it is there. Throws KafkaError when it cannot be had until deadline_later, or the metadata is a newer program's.
    std::optional<std::vector<TakenOver>> result();
    // Gives up; waits for the request on its way (5 s at most).
    void cancel();

private:
    std::vector<TakenOver> ask(const Partitions& partitions, const std::stop_token& stop);

    KafkaConnection& consumer_;
    std::mutex mutex_;
    std::optional<std::vector<TakenOver>> answer_;  // guarded by mutex_
    std::exception_ptr failure_;                    // guarded by mutex_
    std::jthread thread_;                           // last: it uses all of the above
};

// By the rules of a take-over: `committed` nullopt = none. Throws KafkaError for a newer program's metadata.
TakenOver take_over(const std::string& topic, std::int32_t partition, std::optional<std::int64_t> committed, std::string_view metadata,
                    const KafkaConnection::Watermarks& log);

}  // namespace lorry::consumer
