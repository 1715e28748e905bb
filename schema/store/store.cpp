// Opens and writes a Store. Every change is one transaction.
#include "schema/store/store.h"

#include <fmt/format.h>
#include <stdexcept>

#include "schema/store/store_handle.h"
#include "schema/store/store_schema.h"
#include "schema/topics.h"

namespace lorry::schema {
namespace {

// Which status of one source replaces another: terminal over running; among running ones the later (attempt, worker); among terminal ones
// the earlier (finished, attempt, worker). The order is total, so that the row does not depend on the order of arrival.
constexpr const char* upsert_job = R"(
INSERT INTO jobs (source_topic, source_partition, source_offset, id, batch_id, state, tenant, key, model, adapter, worker,
                  attempt, submitted_at, started_at, finished_at, prompt_tokens, completion_tokens, cached_tokens, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (source_topic, source_partition, source_offset) DO UPDATE SET
    id = excluded.id, batch_id = excluded.batch_id, state = excluded.state, tenant = excluded.tenant, key = excluded.key,
    model = excluded.model, adapter = excluded.adapter, worker = excluded.worker, attempt = excluded.attempt,
    submitted_at = excluded.submitted_at, started_at = excluded.started_at, finished_at = excluded.finished_at,
    prompt_tokens = excluded.prompt_tokens, completion_tokens = excluded.completion_tokens,
    cached_tokens = excluded.cached_tokens, error = excluded.error
WHERE CASE
    WHEN jobs.state = 'running' AND excluded.state = 'running'
        THEN (excluded.attempt, coalesce(excluded.worker, '')) > (jobs.attempt, coalesce(jobs.worker, ''))
    WHEN jobs.state = 'running' THEN TRUE
    WHEN excluded.state = 'running' THEN FALSE
    ELSE (coalesce(excluded.finished_at, 0), excluded.attempt, coalesce(excluded.worker, ''), excluded.state)
       < (coalesce(jobs.finished_at, 0), jobs.attempt, coalesce(jobs.worker, ''), jobs.state)
END)";

// A redelivered registration keeps the state that loading gave the adapter.
constexpr const char* upsert_adapter = R"(
INSERT INTO adapters (name, hash, path, base, rank, bytes, state, error, registered_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, 'registered', NULL, ?, ?)
ON CONFLICT (name) DO UPDATE SET
    hash = excluded.hash, path = excluded.path, base = excluded.base, rank = excluded.rank, bytes = excluded.bytes,
    state = 'registered', error = NULL, registered_at = excluded.registered_at, updated_at = excluded.updated_at
WHERE adapters.hash <> excluded.hash OR adapters.path <> excluded.path OR adapters.state = 'removed'
   OR adapters.registered_at IS NOT excluded.registered_at)";

constexpr const char* upsert_offset = R"(
INSERT INTO offsets (topic, partition, topic_id, next) VALUES (?, ?, ?, ?)
ON CONFLICT (topic, partition) DO UPDATE SET topic_id = excluded.topic_id, next = excluded.next
WHERE offsets.topic_id <> excluded.topic_id OR offsets.next < excluded.next)";

std::int64_t now_in_milliseconds() {
    return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now()).time_since_epoch().count();
}

void apply_status(Database& database, const Status& status) {
    const Run& run = status.run;
    database.query(upsert_job)
        .bind(run.source.topic)
        .bind(std::int64_t{run.source.partition})
        .bind(run.source.offset)
        .bind(run.job_id)
        .bind_null_if_empty(run.batch_id)
        .bind(name_of(status.state))
        .bind_null_if_empty(run.tenant)
        .bind_null_if_empty(run.key)
        .bind_null_if_empty(run.model)
        .bind_null_if_empty(run.adapter)
        .bind_null_if_empty(run.worker)
        .bind(run.attempt)
        .bind(milliseconds_of(run.submitted))
        .bind(milliseconds_of(run.started))
        .bind(milliseconds_of(run.finished))
        .bind(status.usage.prompt_tokens)
        .bind(status.usage.completion_tokens)
        .bind(status.usage.cached_tokens)
        .bind_null_if_empty(status.error)
        .run();
}

void apply_registration(Database& database, const AdapterRegistration& adapter) {
    const auto registered = milliseconds_of(adapter.registered);
    database.query(upsert_adapter)
        .bind(adapter.name)
        .bind(adapter.hash)
        .bind(adapter.path)
        .bind_null_if_empty(adapter.base)
        .bind(adapter.rank_max)
        .bind(adapter.bytes)
        .bind(registered)
        .bind(registered)
        .run();
    database.query("DELETE FROM adapter_targets WHERE adapter = ?").bind(adapter.name).run();
    std::int64_t position = 0;
    for (const std::string& target : adapter.targets) {
        database.query("INSERT INTO adapter_targets (adapter, position, target) VALUES (?, ?, ?)")
            .bind(adapter.name)
            .bind(position++)
            .bind(target)
            .run();
    }
}

// The row stays, so that finished jobs can still be explained.
void apply_removal(Database& database, const std::string& name) {
    database.query("UPDATE adapters SET state = 'removed', error = NULL, updated_at = ? WHERE name = ? AND state <> 'removed'")
        .bind(now_in_milliseconds())
        .bind(name)
        .run();
}

void empty_tables(Database& database) {
    database.execute("DELETE FROM jobs; DELETE FROM adapters; DELETE FROM offsets;");  // adapter_targets go with their adapters
}

}  // namespace

Store::Store(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

Store Store::open(const std::filesystem::path& file, Mode mode) {
    if (mode == Mode::reader) {
        if (!std::filesystem::exists(file)) {
            throw std::runtime_error(
                fmt::format("{} does not exist; give the ledger's path, or start a worker that writes it", file.string()));
        }
        auto handle = std::make_unique<Handle>(std::nullopt, Database(file, Database::Access::read));
        require_current_schema(handle->database);
        return Store(std::move(handle));
    }
    FileLease lease(file);
    auto handle = std::make_unique<Handle>(std::move(lease), Database(file, Database::Access::write));
    migrate(handle->database);
    return Store(std::move(handle));
}

void Store::set_cluster_id(const std::string& cluster_id) {
    CHECK(handle_->lease.has_value(), "a reader does not write");
    if (cluster_id.empty() || this->cluster_id() == cluster_id) return;
    Transaction transaction(handle_->database);
    if (ids_differ(this->cluster_id(), cluster_id)) empty_tables(handle_->database);
    handle_->database.query("INSERT INTO meta (key, value) VALUES ('cluster_id', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value")
        .bind(cluster_id)
        .run();
    transaction.commit();
}

void Store::apply(const StoreUpdate& update) {
    CHECK(handle_->lease.has_value(), "a reader does not write");
    Database& database = handle_->database;
    Transaction transaction(database);
    for (const Status& status : update.statuses) apply_status(database, status);
    for (const StoreUpdate::AdapterChange& change : update.adapters) {
        if (change.registration) {
            CHECK(change.registration->name == change.name, "an adapter is registered under its own name");
            apply_registration(database, *change.registration);
        } else {
            apply_removal(database, change.name);
        }
    }
    for (const AppliedOffset& offset : update.offsets) {
        database.query(upsert_offset).bind(offset.topic).bind(std::int64_t{offset.partition}).bind(offset.topic_id).bind(offset.next).run();
    }
    transaction.commit();
}

std::size_t Store::forget_jobs(Timestamp before, std::size_t max) {
    CHECK(handle_->lease.has_value(), "a reader does not write");
    std::size_t forgotten = 0;
    Query query = handle_->database.query(
        "DELETE FROM jobs WHERE rowid IN "
        "(SELECT rowid FROM jobs WHERE state <> 'running' AND finished_at < ? ORDER BY finished_at LIMIT ?) RETURNING 1");
    query.bind(milliseconds_of(std::min(before, closed_until()))).bind(static_cast<std::int64_t>(max));
    while (query.step()) ++forgotten;
    return forgotten;
}

void Store::reset() {
    CHECK(handle_->lease.has_value(), "a reader does not write");
    Transaction transaction(handle_->database);
    empty_tables(handle_->database);
    transaction.commit();
}

void Store::set_adapter_state(const std::string& name, const std::string& hash, const std::string& state, const std::string& error) {
    CHECK(handle_->lease.has_value(), "a reader does not write");
    CHECK(state == "ready" || state == "failed", "loading an adapter ends as ready or failed");
    handle_->database.query("UPDATE adapters SET state = ?, error = ?, updated_at = ? WHERE name = ? AND hash = ? AND state <> 'removed'")
        .bind(state)
        .bind_null_if_empty(error)
        .bind(now_in_milliseconds())
        .bind(name)
        .bind(hash)
        .run();
}

}  // namespace lorry::schema
