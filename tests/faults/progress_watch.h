// How long nothing ends while jobs are left: the promise of progress, measured. On from the moment at which a fault has healed until the
// next one. Used by Tail (evidence.h), under its lock, and by tests of its own. Knows no clock.
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

    // So many more jobs are about to be produced. Counts whether the watch is on or off, as end() does.
    void expect(std::size_t jobs, Time now) {
        if (ended_ == expected_) quiet_since_ = now;  // there was nothing to wait for
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
    // The pause in progress.
    Duration pause(Time now) const { return is_on_ && ended_ != expected_ ? now - quiet_since_ : Duration::zero(); }
    // The longest since begin(), the one in progress too; nullopt: it was off already.
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
    Time quiet_since_;  // the last end, or begin(), or when there was something to wait for again
    Duration longest_{0};
};

}  // namespace lorry::faults
