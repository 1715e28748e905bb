// What jobs used, by day, tenant, key and model. Read from the ledger (store.h), reported by `lorry usage` and by ops/gateway.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "schema/completion.h"

namespace lorry::schema {

// The jobs of one kind that ended on one day. Jobs that took no tokens, as most that failed, are not among them.
struct UsageRow {
    std::chrono::sys_days day{};  // in UTC
    std::string tenant;           // empty: none
    std::string key;              // the id of an API key; empty: none
    std::string model;            // "base", or an adapter's name without @hash
    std::string adapter;          // its content hash; empty: base
    std::int64_t jobs = 0;
    Usage usage = {};
};

struct UsageFilter {
    std::optional<std::chrono::sys_days> since = {};  // the first day
    std::optional<std::chrono::sys_days> until = {};  // the last day
    std::optional<std::string> tenant = {};
};

}  // namespace lorry::schema
