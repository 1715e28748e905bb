// A KeyDirectory that a test fills. Used by tests/ops/gateway.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "consumer/call_backend.h"

namespace lorry::tests {

class FakeKeys final : public consumer::KeyDirectory {
public:
    std::optional<schema::KeyRecord> find(std::string_view id) const override {
        const std::lock_guard lock(mutex_);
        const auto place = keys_.find(std::string(id));
        return place == keys_.end() ? std::nullopt : std::optional(place->second);
    }

    bool is_current() const override { return current; }

    std::atomic<bool> current = true;

    // The n-th key, n < 10.
    static std::string text(int n) { return fmt::format("lorry-{}-{}", id(n), std::string(64, digit(n))); }
    static std::string id(int n) { return std::string(16, digit(n)); }
    // Makes the n-th key what `record` says, or replaces it.
    void set(int n, schema::KeyRecord record) {
        record.id = id(n);
        record.hash = schema::sha256_of(text(n));
        const std::lock_guard lock(mutex_);
        keys_[id(n)] = std::move(record);
    }

private:
    static char digit(int n) { return static_cast<char>('0' + n); }

    mutable std::mutex mutex_;
    std::map<std::string, schema::KeyRecord> keys_;  // guarded by mutex_
};

}  // namespace lorry::tests
