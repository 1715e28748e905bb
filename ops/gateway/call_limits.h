// What callers may still send: requests and tokens per minute, tokens per day, and calls at once. Used by gateway.cpp, on the network's
// thread.
//
// Each limit per minute is a bucket that is full at first and fills up again evenly, so that a caller that was quiet may send a minute's
// worth at once. A call is counted when it begins, its tokens when it ends. So a bucket of tokens may be overdrawn; then no call begins
// until there is a token again.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/gateway/authenticator.h"

namespace lorry::ops {

class CallLimits {
public:
    using Clock = std::chrono::steady_clock;
    struct Refusal {
        const char* limit = "";  // "requests per minute"
        std::chrono::seconds retry_after{1};
    };

    // Of a caller with a limit of tokens per day, which this does not count: what it has used of today's, and how long today is yet.
    struct Today {
        std::int64_t used = 0;
        std::chrono::seconds left{0};
    };

    // Whether the caller has used up its tokens of today, so that neither calls nor batches of it begin.
    static std::optional<Refusal> find_used_up(const Caller& caller, const Today& today);
    // Counts a call, unless it is refused. A caller's limits may change from call to call.
    std::optional<Refusal> begin(const Caller& caller, Clock::time_point now);
    // Once for each call that was counted. tokens: what it took of prompt and answer.
    void end(const Caller& caller, std::int64_t tokens, Clock::time_point now);
    // x-ratelimit-limit-requests and so on, as OpenAI names them, for the limits per minute that the caller has; -tokens-day for tokens per
    // day, if `today` is known.
    std::vector<HttpField> fields(const Caller& caller, Clock::time_point now, const std::optional<Today>& today = {}) const;

    // This gateway's part of each limit but that of a day, above 0 and at most 1. Each limit remains at least 1.
    void set_share(double share);

    // Callers of whom something is remembered: those with calls, and those whose buckets are not full again.
    std::size_t remembered() const { return states_.size(); }

private:
    // Fills up in a minute.
    struct Bucket {
        double capacity = 0;
        double level = 0;  // at that time; below 0 if it is overdrawn
        Clock::time_point at{};

        double level_at(Clock::time_point now) const;
        std::chrono::duration<double> time_to(double wanted, Clock::time_point now) const;
        void take(double amount, Clock::time_point now);
    };
    struct State {
        std::optional<Bucket> requests;  // nullopt: no limit
        std::optional<Bucket> tokens;
        std::int64_t calls = 0;
    };

    double part_of(std::int64_t limit) const;
    void adjust(std::optional<Bucket>& bucket, const std::optional<std::int64_t>& limit, Clock::time_point now) const;
    void forget_idle(Clock::time_point now);

    double share_ = 1.0;
    std::unordered_map<std::string, State> states_;  // by Caller::id
    std::size_t forget_at_ = 1'000;                  // how many states there are when idle ones are next searched for
};

}  // namespace lorry::ops
