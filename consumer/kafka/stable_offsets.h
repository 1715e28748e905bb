// How long readers of committed records have been waiting for a transaction that neither commits nor aborts: a partition's last stable
// offset (KIP-98) then stands still below its end. Of the jobs topic such a reader is this worker, of the results topic whoever collects
// them. For the worker's metrics and log; made by KafkaMember.
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
    // Looks once per interval, on a thread of its own, through `connection`, which must outlive this. An answer that does not come is
    // waited for in the next look.
    StableOffsets(const KafkaConnection& connection, TopicPartitions partitions, std::chrono::milliseconds interval);

    // The longest that any of the topic's partitions has been waiting, to the interval; 0: none does. Any thread.
    std::chrono::milliseconds stall(const std::string& topic) const;

private:
    using Clock = std::chrono::steady_clock;
    using Key = TopicPartitions::value_type;
    struct Stall {
        std::int64_t offset = 0;  // the last stable one
        Clock::time_point since;
        bool told = false;
    };

    void look(const std::stop_token& stop);
    void compare(const EndOffsets& stable, const EndOffsets& ends);

    const KafkaConnection& connection_;
    const TopicPartitions partitions_;
    const std::chrono::milliseconds interval_;
    mutable std::mutex mutex_;
    std::map<Key, Stall> stalls_;  // guarded by mutex_; of partitions that stand below their end
    std::jthread thread_;          // last: it uses all of the above
};

}  // namespace lorry::consumer
