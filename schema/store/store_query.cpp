// Reads a Store. Each call sees the newest committed state.
#include <fmt/format.h>
#include <stdexcept>

#include "schema/codec_error.h"
#include "schema/store/store_handle.h"

namespace lorry::schema {
namespace {

// The filter's conditions as SQL, with parameters in the order of bind_filter. One text per combination, so that each uses its index.
std::string where_of(const JobFilter& filter) {
    std::string where;
    const auto add = [&](bool wanted, std::string_view condition) {
        if (!wanted) return;
        where += where.empty() ? " WHERE " : " AND ";
        where += condition;
    };
    add(filter.id.has_value(), "id = ?");
    add(filter.batch_id.has_value(), "batch_id = ?");
    add(filter.state.has_value(), "state = ?");
    add(filter.model.has_value(), "model = ?");
    return where;
}

void bind_filter(Query& query, const JobFilter& filter) {
    if (filter.id) query.bind(*filter.id);
    if (filter.batch_id) query.bind(*filter.batch_id);
    if (filter.state) query.bind(name_of(*filter.state));
    if (filter.model) query.bind(*filter.model);
}

JobState state_of(const Database& database, const std::string& name) {
    const auto state = state_named(name);
    if (!state)
        throw std::runtime_error(
            fmt::format("{}: a job has the state '{}', which this program does not know; move the file aside "
                        "while no worker runs: it is rebuilt from the topics",
                        database.file().string(), shortened(repair_utf8(name))));
    return *state;
}

}  // namespace

std::string Store::cluster_id() const {
    Query query = handle_->database.query("SELECT value FROM meta WHERE key = 'cluster_id'");
    return query.step() ? query.text(0) : std::string();
}

std::vector<AppliedOffset> Store::offsets() const {
    std::vector<AppliedOffset> offsets;
    Query query = handle_->database.query("SELECT topic, topic_id, partition, next FROM offsets ORDER BY topic, partition");
    while (query.step()) {
        offsets.push_back({.topic = query.text(0),
                           .topic_id = query.text(1),
                           .partition = static_cast<std::int32_t>(query.integer(2)),
                           .next = query.integer(3)});
    }
    return offsets;
}

std::vector<Status> Store::jobs(const JobFilter& filter) const {
    Database& database = handle_->database;
    Query query = database.query(
        "SELECT source_topic, source_partition, source_offset, id, batch_id, state, model, adapter, worker, attempt, submitted_at, "
        "started_at, finished_at, prompt_tokens, completion_tokens, cached_tokens, error, tenant, key FROM jobs" +
        where_of(filter) +
        " ORDER BY coalesce(submitted_at, started_at, finished_at, 0) DESC, source_topic, source_partition, source_offset DESC LIMIT ?");
    bind_filter(query, filter);
    query.bind(static_cast<std::int64_t>(filter.limit));
    std::vector<Status> jobs;
    while (query.step()) {
        Status& status = jobs.emplace_back();
        status.run = {
            .job_id = query.text(3),
            .batch_id = query.text(4),
            .tenant = query.text(17),
            .key = query.text(18),
            .model = query.text(6),
            .adapter = query.text(7),
            .worker = query.text(8),
            .source = {.topic = query.text(0), .partition = static_cast<std::int32_t>(query.integer(1)), .offset = query.integer(2)},
            .attempt = query.integer(9),
            .submitted = timestamp_of(query.optional_integer(10)),
            .started = timestamp_of(query.optional_integer(11)),
            .finished = timestamp_of(query.optional_integer(12))};
        status.state = state_of(database, query.text(5));
        status.usage = {.prompt_tokens = query.integer(13), .completion_tokens = query.integer(14), .cached_tokens = query.integer(15)};
        status.error = query.text(16);
    }
    return jobs;
}

JobCounts Store::count(const JobFilter& filter) const {
    Database& database = handle_->database;
    Query query = database.query("SELECT state, count(*) FROM jobs" + where_of(filter) + " GROUP BY state");
    bind_filter(query, filter);
    JobCounts counts;
    while (query.step()) {
        switch (state_of(database, query.text(0))) {
            case JobState::running: counts.running = query.integer(1); break;
            case JobState::completed: counts.completed = query.integer(1); break;
            case JobState::failed: counts.failed = query.integer(1); break;
            case JobState::expired: counts.expired = query.integer(1); break;
            case JobState::cancelled: counts.cancelled = query.integer(1); break;
        }
    }
    return counts;
}

std::vector<AdapterRow> Store::adapters() const {
    Database& database = handle_->database;
    // One statement, so that adapters and targets are consistent.
    Query query = database.query(
        "SELECT name, hash, path, base, rank, bytes, state, error, registered_at, updated_at, target "
        "FROM adapters LEFT JOIN adapter_targets ON adapter = name ORDER BY name, position");
    std::vector<AdapterRow> rows;
    while (query.step()) {
        if (rows.empty() || rows.back().registration.name != query.text(0)) {
            AdapterRow& row = rows.emplace_back();
            row.registration = {.name = query.text(0),
                                .hash = query.text(1),
                                .path = query.text(2),
                                .base = query.text(3),
                                .rank_max = query.integer(4),
                                .targets = {},
                                .bytes = query.integer(5),
                                .registered = timestamp_of(query.optional_integer(8))};
            row.state = query.text(6);
            row.error = query.text(7);
            row.updated = timestamp_of(query.optional_integer(9));
        }
        if (std::string target = query.text(10); !target.empty()) rows.back().registration.targets.push_back(std::move(target));
    }
    return rows;
}

}  // namespace lorry::schema
