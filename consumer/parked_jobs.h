// Jobs that were read and cannot run yet, in one queue for each reason. They hold their text and nothing else. Used by pipeline.cpp's
// intake thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "consumer/intake.h"
#include "consumer/seams.h"

namespace lorry::consumer {

// What a parked job waits for.
enum class Awaited : std::uint8_t {
    name,             // the registration of its adapter
    grammar,          // that what its answers must match is compiled
    room,             // that other jobs end
    large_room,       // that other large jobs end
    grammar_of_call,  // as grammar, of a call
    for_a_call,       // a call's adapter, or its room
};
inline constexpr std::size_t awaited_count = 6;
inline constexpr Awaited of_calls[] = {Awaited::grammar_of_call, Awaited::for_a_call};

class ParkedJobs {
public:
    void push(Awaited awaited, AdmittedJob job);
    // Before all that wait for the same.
    void push_first(Awaited awaited, AdmittedJob job);
    AdmittedJob pop(Awaited awaited);
    AdmittedJob& at(Awaited awaited, std::size_t place) { return queue(awaited).at(place); }
    const AdmittedJob& first(Awaited awaited) const { return queue(awaited).front(); }

    std::size_t count(Awaited awaited) const { return queue(awaited).size(); }
    std::size_t count() const;
    std::size_t calls() const;                                                                       // of these
    std::int64_t bytes(Awaited awaited) const { return bytes_[static_cast<std::size_t>(awaited)]; }  // of their records
    std::int64_t bytes() const;
    std::int64_t bytes_of_calls() const;
    void drop(const std::vector<PartitionEpoch>& partitions);
    // Takes out all jobs for which `goes` is true.
    std::vector<AdmittedJob> take_if(const std::function<bool(const AdmittedJob&)>& goes);

private:
    std::deque<AdmittedJob>& queue(Awaited awaited) { return queues_[static_cast<std::size_t>(awaited)]; }
    const std::deque<AdmittedJob>& queue(Awaited awaited) const { return queues_[static_cast<std::size_t>(awaited)]; }

    std::array<std::deque<AdmittedJob>, awaited_count> queues_;
    std::array<std::int64_t, awaited_count> bytes_{};
};

}  // namespace lorry::consumer
