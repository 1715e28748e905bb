// The pauses between retries: each twice as long as the one before, up to a limit. Holds no clock: the caller waits. Used by
// consumer/kafka.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace lorry::consumer {

class Backoff {
public:
    constexpr Backoff(std::chrono::milliseconds first, std::chrono::milliseconds most) : first_(first), most_(most), pause_(first) {}

    // How long to wait now.
    constexpr std::chrono::milliseconds next() { return std::exchange(pause_, std::min(2 * pause_, most_)); }
    // Call after a success: the next failure begins with the first pause.
    constexpr void reset() { pause_ = first_; }

private:
    std::chrono::milliseconds first_;
    std::chrono::milliseconds most_;
    std::chrono::milliseconds pause_;
};

}  // namespace lorry::consumer
