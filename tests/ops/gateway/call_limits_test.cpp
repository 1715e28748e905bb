// Limits of callers, by a clock that the test sets.
#include "ops/gateway/call_limits.h"

#include <gmock/gmock.h>

#include <fmt/format.h>

namespace lorry::ops {
namespace {

using namespace std::chrono_literals;
using Clock = CallLimits::Clock;

struct LimitsRig {
    // "ok", or "requests per minute, 2 s".
    std::string begin(const Caller& caller) {
        auto refused = today ? CallLimits::find_used_up(caller, *today) : std::nullopt;
        if (!refused) refused = limits.begin(caller, now);
        return refused ? fmt::format("{}, {} s", refused->limit, refused->retry_after.count()) : "ok";
    }
    void end(const Caller& caller, std::int64_t tokens = 0) { limits.end(caller, tokens, now); }
    std::string fields(const Caller& caller) const {
        std::string text;
        for (const auto& [name, value] : limits.fields(caller, now, today)) {
            EXPECT_TRUE(name.starts_with("x-ratelimit-")) << name;
            text += fmt::format("{}{}={}", text.empty() ? "" : " ", name.substr(12), value);
        }
        return text;
    }

    CallLimits limits;
    Clock::time_point now{};
    std::optional<CallLimits::Today> today;
};

TEST(CallLimits, ACallerWithoutLimitsIsNeitherLimitedNorRemembered) {
    LimitsRig rig;
    const Caller caller{.id = "a"};
    for (int i = 0; i < 100; ++i) EXPECT_EQ(rig.begin(caller), "ok");
    rig.end(caller, 1'000'000);
    EXPECT_EQ(rig.fields(caller), "");
    EXPECT_EQ(rig.limits.remembered(), 0U);
}

TEST(CallLimits, RequestsPerMinuteFillUpEvenly) {
    LimitsRig rig;
    const Caller caller{.id = "a", .limits = {.requests_per_minute = 6}};
    EXPECT_EQ(rig.fields(caller), "limit-requests=6 remaining-requests=6 reset-requests=0ms");
    for (int i = 0; i < 6; ++i) EXPECT_EQ(rig.begin(caller), "ok");
    EXPECT_EQ(rig.fields(caller), "limit-requests=6 remaining-requests=0 reset-requests=1m0s");
    EXPECT_EQ(rig.begin(caller), "requests per minute, 10 s");
    EXPECT_EQ(rig.begin({.id = "b", .limits = caller.limits}), "ok") << "another caller has limits of its own";
    rig.now += 9'500ms;
    EXPECT_EQ(rig.begin(caller), "requests per minute, 1 s");
    rig.now += 500ms;
    EXPECT_EQ(rig.begin(caller), "ok");
    EXPECT_EQ(rig.begin(caller), "requests per minute, 10 s") << "refused calls are not counted";
    rig.now += 10min;
    EXPECT_EQ(rig.fields(caller), "limit-requests=6 remaining-requests=6 reset-requests=0ms") << "no more than a minute's worth";
}

TEST(CallLimits, TokensAreCountedAtTheEndAndMayBeOverdrawnOnce) {
    LimitsRig rig;
    const Caller caller{.id = "a", .limits = {.tokens_per_minute = 600}};
    ASSERT_EQ(rig.begin(caller), "ok");
    ASSERT_EQ(rig.begin(caller), "ok");
    rig.end(caller, 500);
    EXPECT_EQ(rig.fields(caller), "limit-tokens=600 remaining-tokens=100 reset-tokens=50s");
    rig.end(caller, 300);
    EXPECT_EQ(rig.fields(caller), "limit-tokens=600 remaining-tokens=0 reset-tokens=1m20s");
    EXPECT_EQ(rig.begin(caller), "tokens per minute, 21 s") << "200 overdrawn at 10 per second, and one more";
    rig.now += 21s;
    EXPECT_EQ(rig.begin(caller), "ok");
    rig.end(caller, 0);
}

TEST(CallLimits, TokensPerDayAreThoseThatTheTopicsSayAndComeBackAtMidnight) {
    LimitsRig rig;
    const Caller caller{.id = "a", .limits = {.requests_per_minute = 60, .tokens_per_day = 1'000}};
    rig.limits.set_share(0.5);
    rig.today = {.used = 999, .left = 2h};
    EXPECT_EQ(rig.begin(caller), "ok");
    rig.end(caller, 5'000);
    EXPECT_THAT(rig.fields(caller), testing::EndsWith("limit-tokens-day=1000 remaining-tokens-day=1 reset-tokens-day=2h0m0s"));
    rig.today = {.used = 1'200, .left = 90min};
    EXPECT_EQ(rig.begin(caller), "tokens per day, 5400 s");
    EXPECT_THAT(rig.fields(caller), testing::HasSubstr("remaining-tokens-day=0"));
    EXPECT_THAT(rig.fields(caller), testing::HasSubstr("remaining-requests=29")) << "a refused call does not count";
    rig.today = {.used = 0, .left = 24h};
    EXPECT_EQ(rig.begin(caller), "ok");
    rig.today.reset();
    EXPECT_EQ(rig.begin({.id = "b", .limits = {.tokens_per_minute = 60}}), "ok");
}

TEST(CallLimits, CallsAtOnceAreThoseThatHaveNotEnded) {
    LimitsRig rig;
    const Caller caller{.id = "a", .limits = {.calls_at_once = 2}};
    EXPECT_EQ(rig.begin(caller), "ok");
    EXPECT_EQ(rig.begin(caller), "ok");
    EXPECT_EQ(rig.begin(caller), "calls at once, 1 s");
    rig.now += 10min;
    EXPECT_EQ(rig.begin(caller), "calls at once, 1 s");
    rig.end(caller);
    EXPECT_EQ(rig.begin(caller), "ok");
    EXPECT_EQ(rig.fields(caller), "") << "only limits per minute have fields";
}

// Several gateways share a caller's limits, but none of them locks it out.
TEST(CallLimits, AGatewayGivesItsShareAndAtLeastOne) {
    LimitsRig rig;
    rig.limits.set_share(0.25);
    const Caller caller{.id = "a", .limits = {.requests_per_minute = 10, .calls_at_once = 1}};
    EXPECT_EQ(rig.fields(caller), "limit-requests=2 remaining-requests=2 reset-requests=0ms");
    EXPECT_EQ(rig.begin(caller), "ok");
    EXPECT_EQ(rig.begin(caller), "calls at once, 1 s");
    rig.end(caller);
    EXPECT_EQ(rig.begin(caller), "ok");
    rig.end(caller);
    EXPECT_EQ(rig.begin(caller), "requests per minute, 30 s");
    // A gateway went away: what was used stays used.
    rig.limits.set_share(0.5);
    EXPECT_EQ(rig.begin(caller), "requests per minute, 12 s");
    rig.now += 12s;
    EXPECT_EQ(rig.begin(caller), "ok");
    rig.end(caller);
}

TEST(CallLimits, AChangedLimitCountsAtOnce) {
    LimitsRig rig;
    EXPECT_EQ(rig.begin({.id = "a", .limits = {.requests_per_minute = 100}}), "ok");
    EXPECT_EQ(rig.begin({.id = "a", .limits = {.requests_per_minute = 1}}), "ok");
    EXPECT_EQ(rig.begin({.id = "a", .limits = {.requests_per_minute = 1}}), "requests per minute, 60 s");
    EXPECT_EQ(rig.begin({.id = "a", .limits = {.calls_at_once = 9}}), "ok");
}

// Callers by tokens of others may be any number.
TEST(CallLimits, CallersThatMayDoAllAgainAreForgotten) {
    LimitsRig rig;
    for (int i = 0; i < 5'000; ++i) {
        const Caller caller{.id = std::to_string(i), .limits = {.requests_per_minute = 60}};
        ASSERT_EQ(rig.begin(caller), "ok");
        rig.end(caller);
        rig.now += 100ms;
    }
    EXPECT_LE(rig.limits.remembered(), 1'000U);
    const Caller busy{.id = "busy", .limits = {.calls_at_once = 1}};
    ASSERT_EQ(rig.begin(busy), "ok");
    for (int i = 0; i < 5'000; ++i) {
        ASSERT_EQ(rig.begin({.id = std::to_string(i), .limits = {.requests_per_minute = 60}}), "ok");
    }
    EXPECT_EQ(rig.begin(busy), "calls at once, 1 s") << "calls that run are not forgotten";
}

}  // namespace
}  // namespace lorry::ops
