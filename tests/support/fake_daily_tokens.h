// What a key has used today, as a test says. Used by tests/ops/gateway.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "consumer/call_backend.h"

namespace lorry::tests {

class FakeDailyTokens final : public consumer::DailyTokens {
public:
    // The only key that may be asked for.
    explicit FakeDailyTokens(std::string key) : key_(std::move(key)) {}

    std::optional<std::int64_t> used(std::string_view key, std::chrono::sys_days day) const override {
        EXPECT_LE(std::chrono::system_clock::now() - day, std::chrono::hours(25));
        EXPECT_EQ(key, key_);
        return is_known ? std::optional(tokens.load()) : std::nullopt;
    }

    std::atomic<bool> is_known = true;
    std::atomic<std::int64_t> tokens = 0;

private:
    const std::string key_;
};

}  // namespace lorry::tests
