// Buckets that fill up with time.
#include "ops/gateway/call_limits.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "schema/check.h"

namespace lorry::ops {
namespace {

constexpr double minute = 60.0;

bool is_limited(const schema::KeyLimits& limits) { return limits.requests_per_minute || limits.tokens_per_minute || limits.calls_at_once; }

// As OpenAI writes durations: "17ms", "1s", "6m0s", "7h40m0s".
std::string show(std::chrono::duration<double> time) {
    const auto milliseconds = static_cast<std::int64_t>(std::ceil(time.count() * 1e3));
    if (milliseconds < 1'000) return fmt::format("{}ms", milliseconds);
    const std::int64_t seconds = (milliseconds + 999) / 1'000;
    if (seconds < 60) return fmt::format("{}s", seconds);
    const std::int64_t minutes = seconds / 60;
    return minutes < 60 ? fmt::format("{}m{}s", minutes, seconds % 60) : fmt::format("{}h{}m{}s", minutes / 60, minutes % 60, seconds % 60);
}

CallLimits::Refusal refusal(const char* limit, std::chrono::duration<double> time) {
    return {.limit = limit, .retry_after = std::max(std::chrono::seconds(1), std::chrono::ceil<std::chrono::seconds>(time))};
}

}  // namespace

double CallLimits::Bucket::level_at(Clock::time_point now) const {
    return std::min(capacity, level + capacity * std::chrono::duration<double>(now - at).count() / minute);
}

std::chrono::duration<double> CallLimits::Bucket::time_to(double wanted, Clock::time_point now) const {
    return std::chrono::duration<double>(std::max(0.0, wanted - level_at(now)) * minute / capacity);
}

void CallLimits::Bucket::take(double amount, Clock::time_point now) {
    level = level_at(now) - amount;
    at = now;
}

double CallLimits::part_of(std::int64_t limit) const { return std::max(1.0, std::floor(static_cast<double>(limit) * share_)); }

// Makes the bucket as large as the limit is now.
void CallLimits::adjust(std::optional<Bucket>& bucket, const std::optional<std::int64_t>& limit, Clock::time_point now) const {
    if (!limit) return bucket.reset();
    const double capacity = part_of(*limit);
    bucket = Bucket{.capacity = capacity, .level = bucket ? std::min(bucket->level_at(now), capacity) : capacity, .at = now};
}

std::optional<CallLimits::Refusal> CallLimits::find_used_up(const Caller& caller, const Today& today) {
    if (!caller.limits.tokens_per_day || today.used < *caller.limits.tokens_per_day) return std::nullopt;
    return refusal("tokens per day", today.left);
}

std::optional<CallLimits::Refusal> CallLimits::begin(const Caller& caller, Clock::time_point now) {
    if (!is_limited(caller.limits)) return std::nullopt;
    if (states_.size() >= forget_at_) forget_idle(now);
    State& state = states_[caller.id];
    adjust(state.requests, caller.limits.requests_per_minute, now);
    adjust(state.tokens, caller.limits.tokens_per_minute, now);
    if (state.requests && state.requests->level < 1.0) return refusal("requests per minute", state.requests->time_to(1.0, now));
    if (state.tokens && state.tokens->level < 1.0) return refusal("tokens per minute", state.tokens->time_to(1.0, now));
    if (caller.limits.calls_at_once && static_cast<double>(state.calls) >= part_of(*caller.limits.calls_at_once)) {
        return refusal("calls at once", {});
    }
    if (state.requests) state.requests->take(1.0, now);
    ++state.calls;
    return std::nullopt;
}

void CallLimits::end(const Caller& caller, std::int64_t tokens, Clock::time_point now) {
    if (!is_limited(caller.limits)) return;
    const auto state = states_.find(caller.id);
    CHECK(state != states_.end() && state->second.calls > 0, "a call that ends was counted when it began");
    --state->second.calls;
    if (state->second.tokens) state->second.tokens->take(static_cast<double>(tokens), now);
}

std::vector<HttpField> CallLimits::fields(const Caller& caller, Clock::time_point now, const std::optional<Today>& today) const {
    std::vector<HttpField> fields;
    const auto state = states_.find(caller.id);
    const auto add = [&](const char* unit, const std::optional<std::int64_t>& limit, std::optional<Bucket> State::*member) {
        if (!limit) return;
        std::optional<Bucket> bucket = state == states_.end() ? std::nullopt : state->second.*member;
        adjust(bucket, limit, now);
        fields.emplace_back(fmt::format("x-ratelimit-limit-{}", unit), fmt::format("{:.0f}", bucket->capacity));
        fields.emplace_back(fmt::format("x-ratelimit-remaining-{}", unit), fmt::format("{:.0f}", std::floor(std::max(0.0, bucket->level))));
        fields.emplace_back(fmt::format("x-ratelimit-reset-{}", unit), show(bucket->time_to(bucket->capacity, now)));
    };
    add("requests", caller.limits.requests_per_minute, &State::requests);
    add("tokens", caller.limits.tokens_per_minute, &State::tokens);
    if (today && caller.limits.tokens_per_day) {
        const std::int64_t limit = *caller.limits.tokens_per_day;
        fields.emplace_back("x-ratelimit-limit-tokens-day", std::to_string(limit));
        fields.emplace_back("x-ratelimit-remaining-tokens-day", std::to_string(std::max<std::int64_t>(0, limit - today->used)));
        fields.emplace_back("x-ratelimit-reset-tokens-day", show(today->left));
    }
    return fields;
}

void CallLimits::set_share(double share) {
    CHECK(share > 0.0 && share <= 1.0, "a gateway's part of the limits is some of them, or all");
    share_ = share;
}

// Callers are forgotten once they may send as much as one that was never seen.
void CallLimits::forget_idle(Clock::time_point now) {
    const auto is_full = [&](const std::optional<Bucket>& bucket) { return !bucket || bucket->level_at(now) >= bucket->capacity; };
    std::erase_if(states_, [&](const auto& entry) {
        const State& state = entry.second;
        return state.calls == 0 && is_full(state.requests) && is_full(state.tokens);
    });
    forget_at_ = std::max<std::size_t>(1'000, 2 * states_.size());
}

}  // namespace lorry::ops
