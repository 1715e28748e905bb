// Measures how long readers of committed records have been waiting for a transaction that neither commits nor aborts: a partition's last
// stable offset (KIP-98) then stays below its end. On the jobs topic this worker is such a reader; on the results topic, any program that
// collects results is. Feeds the worker's metrics and log; owned by KafkaMember.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "consumer/kafka/end_offsets.h"

namespace lorry::consumer {

class StableOffsets {
public:
    // Asks once per interval, on a thread of its own, through `connection`, which must outlive this. If an answer is missing, the next
    // interval tries again.
    StableOffsets(const KafkaConnection& connection, TopicPartitions partitions, std::chrono::milliseconds interval);

    // The longest that any partition of the topic has been waiting, accurate to one interval; 0 if none is waiting. Any thread.
    std::chrono::milliseconds stall(const std::string& topic) const;

private:
    using Clock = std::chrono::steady_clock;
    using Key = TopicPartitions::value_type;
    struct Stall {
        std::int64_t offset = 0;  // the last stable offset
        Clock::time_point since;
        bool is_logged = false;
    };

    void look(const std::stop_token& stop);
    void compare(const EndOffsets& stable, const EndOffsets& ends);

    const KafkaConnection& connection_;
    const TopicPartitions partitions_;
    const std::chrono::milliseconds interval_;
    mutable std::mutex mutex_;
    std::map<Key, Stall> stalls_;  // guarded by mutex_; partitions whose stable offset is below their end
    std::jthread thread_;          // last: it uses all of the above
};

}  // namespace lorry::consumer
