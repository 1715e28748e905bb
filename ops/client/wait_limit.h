// How long a command waits for jobs (--timeout). Used by `collect`, `tail` and `submit --wait`.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "consumer/kafka/config.h"

namespace lorry::ops {

// The time that a flag has; nullopt: it was not given. Throws UsageError.
std::optional<std::chrono::milliseconds> time_of(const char* flag, const std::optional<std::string>& text);

// Counts from its making. One thread.
class WaitLimit {
public:
    // nullopt: waits without limit. 0: takes what exists and does not wait for more.
    explicit WaitLimit(std::optional<std::chrono::milliseconds> time) : time_(time) {}
    static WaitLimit now() { return WaitLimit(std::chrono::milliseconds(0)); }

    // Waits no longer for the first answer of the brokers, unless the limit is 0.
    consumer::KafkaConfig applied_to(consumer::KafkaConfig config) const;
    // Whether the wait ends. has_read_all: what existed when the command began was read.
    bool ends(bool has_read_all) const;

private:
    std::optional<std::chrono::milliseconds> time_;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace lorry::ops
