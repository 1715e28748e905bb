// Measures progress: the longest time in which no job ends though jobs are left. It is on from the moment a fault has healed until the next
// fault. Used by Tail (evidence.h), under its lock, and by its own tests. Callers pass the time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>

namespace lorry::faults {

class ProgressWatch {
public:
    using Time = std::chrono::steady_clock::time_point;
    using Duration = std::chrono::steady_clock::duration;

    // This many more jobs are about to be produced. Like end(), counts whether the watch is on or off.
    void expect(std::size_t jobs, Time now) {
        if (ended_ == expected_) quiet_since_ = now;  // until now there was nothing to wait for
        expected_ += jobs;
    }
    // A job has ended for the first time.
    void end(Time now) {
        longest_ = std::max(longest_, pause(now));
        quiet_since_ = now;
        ++ended_;
    }

    void begin(Time now) {
        is_on_ = true;
        longest_ = Duration::zero();
        quiet_since_ = now;
    }
    // The current pause.
    Duration pause(Time now) const { return is_on_ && ended_ != expected_ ? now - quiet_since_ : Duration::zero(); }
    // Turns the watch off. Returns the longest pause since begin(), including the current one; nullopt: it was already off.
    std::optional<Duration> stop(Time now) {
        if (!is_on_) return std::nullopt;
        longest_ = std::max(longest_, pause(now));
        is_on_ = false;
        return longest_;
    }

private:
    bool is_on_ = false;
    std::size_t expected_ = 0;
    std::size_t ended_ = 0;
    Time quiet_since_;  // the time of the last end, of begin(), or of the first job after none were left
    Duration longest_{0};
};

}  // namespace lorry::faults
