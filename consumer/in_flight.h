// How many delivered jobs of each partition are not yet committed: what back-pressure and drains wait for. Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "consumer/seams.h"

namespace lorry::consumer {

class InFlight {
public:
    void add(const schema::Source& source, Epoch epoch) {
        const std::lock_guard lock(mutex_);
        ++counts_[key(source.topic, source.partition, epoch)];
        ++total_;
    }
    void remove(const schema::Source& source, Epoch epoch) {
        const std::lock_guard lock(mutex_);
        const auto place = counts_.find(key(source.topic, source.partition, epoch));
        CHECK(place != counts_.end(), "only what was added is removed");
        if (--place->second == 0) counts_.erase(place);
        --total_;
        changed_.notify_all();
    }
    std::size_t total() const {
        const std::lock_guard lock(mutex_);
        return total_;
    }
    // Waits until nothing of these partitions is in flight; false when the deadline came first or `failed` says so.
    template <typename Failed>
    bool wait_until_none(const std::vector<PartitionEpoch>& partitions, Clock::time_point deadline, const Failed& failed) {
        std::unique_lock lock(mutex_);
        const auto none = [&] {
            for (const PartitionEpoch& one : partitions) {
                if (counts_.contains(key(one.topic, one.partition, one.epoch))) return false;
            }
            return true;
        };
        while (!none()) {
            if (failed() || Clock::now() >= deadline) return false;
            changed_.wait_until(lock, std::min(deadline, Clock::now() + std::chrono::milliseconds(50)));
        }
        return true;
    }

private:
    using Key = std::tuple<std::string, std::int32_t, Epoch>;
    static Key key(const std::string& topic, std::int32_t partition, Epoch epoch) { return {topic, partition, epoch}; }

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::map<Key, std::size_t> counts_;  // guarded by mutex_
    std::size_t total_ = 0;              // guarded by mutex_
};

}  // namespace lorry::consumer
