// Answers GET /v1/usage on a thread of its own, as the ledger's disk may be slow. Made and used by gateway.cpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/gateway/task_threads.h"
#include "ops/http/server.h"
#include "schema/store/usage.h"
#include "schema/store/usage_report.h"

namespace lorry::ops {

// What is asked for.
struct UsageQuery {
    schema::UsageFilter filter;
    std::vector<schema::UsageColumn> by;
    bool is_csv = false;
};
// Of the fields since, until, tenant, by and format. `own`: the tenant whose usage it is to be; nullopt: all tenants'. The error is a 400,
// or a 403 for another tenant.
Expected<UsageQuery, HttpAnswer> usage_query(std::string_view target, const std::optional<std::string>& own);

class UsagePages {
public:
    struct Options {
        // On the thread. Throws std::runtime_error when it cannot be read. Empty: there is no usage.
        std::function<std::vector<schema::UsageRow>(const schema::UsageFilter&)> read = {};
        std::optional<schema::Prices> prices = {};
    };
    static constexpr std::size_t waiting_max = 64;

    explicit UsagePages(Options options);

    bool is_served() const { return options_.read != nullptr; }
    // Calls `done` on the thread, once, unless this is destroyed before. False, and no call: too many wait. The network's thread.
    bool answer(UsageQuery query, std::function<void(HttpAnswer)> done);

private:
    HttpAnswer page(const UsageQuery& query) const;

    const Options options_;
    std::atomic<std::size_t> waiting_ = 0;
    std::optional<TaskThreads> thread_;  // if it is served; last: it uses all of the above
};

}  // namespace lorry::ops
