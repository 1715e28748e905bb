// Jobs that were read and cannot run yet, first in, first out. They hold their text and nothing else. Used by pipeline.cpp's intake thread
// only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "consumer/intake.h"
#include "consumer/seams.h"

namespace lorry::consumer {

// What a parked job waits for.
enum class Awaited : std::uint8_t {
    name,  // the registration of its adapter
    room,  // that other jobs end, or that its start is committed
};

class ParkedJobs {
public:
    void push(Awaited awaited, AdmittedJob job);
    // Before all that wait for the same.
    void push_first(Awaited awaited, AdmittedJob job);
    AdmittedJob pop(Awaited awaited);

    std::size_t count(Awaited awaited) const { return queue(awaited).size(); }
    std::size_t count() const { return count(Awaited::name) + count(Awaited::room); }
    std::int64_t bytes() const { return bytes_; }  // of their records
    void drop(const std::vector<PartitionEpoch>& partitions);

private:
    std::deque<AdmittedJob>& queue(Awaited awaited) { return queues_[static_cast<std::size_t>(awaited)]; }
    const std::deque<AdmittedJob>& queue(Awaited awaited) const { return queues_[static_cast<std::size_t>(awaited)]; }

    std::array<std::deque<AdmittedJob>, 2> queues_;
    std::int64_t bytes_ = 0;
};

}  // namespace lorry::consumer
