// Usage in a Store. Open days are summed up from the jobs, and each sum of a closed day is a row: so a job counts once, however often and
// in whatever order its statuses come, and usage outlives its jobs.
#include <algorithm>

#include <fmt/format.h>

#include "schema/store/store_handle.h"
#include "schema/store/usage.h"

namespace lorry::schema {
namespace {

using std::chrono::days;
using std::chrono::sys_days;

constexpr std::int64_t day_ms = std::chrono::milliseconds(days(1)).count();
constexpr const char* stored_columns = "day, tenant, key, model, adapter, jobs, prompt_tokens, completion_tokens, cached_tokens";

// The jobs that ended between two times and took tokens. No name of an adapter has an '@'.
constexpr const char* usage_of_jobs = R"(
SELECT finished_at / 86400000 AS day, coalesce(tenant, '') AS tenant, coalesce(key, '') AS key,
       CASE WHEN adapter IS NULL OR model IS NULL THEN 'base'
            WHEN instr(model, '@') > 0 THEN substr(model, 1, instr(model, '@') - 1)
            ELSE model END AS model,
       coalesce(adapter, '') AS adapter, count(*) AS jobs, sum(prompt_tokens) AS prompt_tokens,
       sum(completion_tokens) AS completion_tokens, sum(cached_tokens) AS cached_tokens
FROM jobs
WHERE state <> 'running' AND finished_at >= ? AND finished_at < ? AND prompt_tokens + completion_tokens > 0
GROUP BY 1, 2, 3, 4, 5)";

std::int64_t number_of(sys_days day) { return day.time_since_epoch().count(); }

// The first day that is open.
std::int64_t first_open_day(Database& database) {
    Query query = database.query("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'usage_closed'");
    return query.step() ? query.integer(0) : 0;
}

}  // namespace

void Store::close_days(Timestamp before) {
    CHECK(handle_->lease.has_value(), "a reader does not write");
    Database& database = handle_->database;
    const std::int64_t open = first_open_day(database);
    const std::int64_t end = number_of(std::chrono::floor<days>(before));
    if (end <= open) return;
    Transaction transaction(database);
    database.query(fmt::format("INSERT INTO usage ({}) SELECT {} FROM ({})", stored_columns, stored_columns, usage_of_jobs))
        .bind(open * day_ms)
        .bind(end * day_ms)
        .run();
    database.query("INSERT INTO meta (key, value) VALUES ('usage_closed', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value")
        .bind(std::to_string(end))
        .run();
    transaction.commit();
}

Timestamp Store::closed_until() const { return sys_days(days(first_open_day(handle_->database))); }

std::vector<UsageRow> Store::usage(const UsageFilter& filter) const {
    Database& database = handle_->database;
    constexpr std::int64_t last_day = 4'000'000;  // later than any Timestamp
    const std::int64_t since = filter.since ? number_of(*filter.since) : 0;
    const std::int64_t until = filter.until ? number_of(*filter.until) : last_day;
    // One statement, so that a day that is closed meanwhile counts once.
    Query query = database.query(
        fmt::format("SELECT {} FROM usage WHERE day BETWEEN ?1 AND ?2 AND (?3 IS NULL OR tenant = ?3) UNION ALL SELECT {} FROM ({}) "
                    "WHERE day >= (SELECT coalesce(max(CAST(value AS INTEGER)), 0) FROM meta WHERE key = 'usage_closed') "
                    "AND (?3 IS NULL OR tenant = ?3) ORDER BY 1, 2, 3, 4, 5",
                    stored_columns, stored_columns, usage_of_jobs));
    query.bind(since).bind(until);
    if (filter.tenant) {
        query.bind(*filter.tenant);
    } else {
        query.bind(std::optional<std::int64_t>());
    }
    query.bind(std::max(since, first_open_day(database)) * day_ms).bind((until + 1) * day_ms);
    std::vector<UsageRow> rows;
    while (query.step()) {
        rows.push_back(
            {.day = sys_days(days(query.integer(0))),
             .tenant = query.text(1),
             .key = query.text(2),
             .model = query.text(3),
             .adapter = query.text(4),
             .jobs = query.integer(5),
             .usage = {.prompt_tokens = query.integer(6), .completion_tokens = query.integer(7), .cached_tokens = query.integer(8)}});
    }
    return rows;
}

}  // namespace lorry::schema
