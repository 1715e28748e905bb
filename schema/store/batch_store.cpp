// The tables of files and batches, and the statements on them.
#include "schema/store/batch_store.h"

#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "schema/check.h"

namespace lorry::schema {
namespace {

// Rows are appended in the order of their arrival, so that only the narrow indexes are written in the random order of ids. Batches keep
// their record as text, which they end with, so that what is asked without it does not read its pages.
constexpr const char* tables = R"(
CREATE TABLE files (
    id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    purpose TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    created INTEGER NOT NULL
) STRICT;
CREATE INDEX files_by_creation ON files (tenant, created, id, purpose);

CREATE TABLE batches (
    id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    created INTEGER NOT NULL,
    topic_partition INTEGER NOT NULL,
    state TEXT NOT NULL,
    is_open INTEGER NOT NULL,
    ended INTEGER,
    jobs_left INTEGER NOT NULL,
    input_file TEXT NOT NULL,
    record TEXT NOT NULL
) STRICT;
CREATE INDEX batches_by_creation ON batches (tenant, created, id);
CREATE INDEX open_batches_by_partition ON batches (topic_partition, id) WHERE is_open = 1;
CREATE INDEX open_batches_by_key ON batches (tenant, key, jobs_left) WHERE is_open = 1;
CREATE INDEX open_batches_by_input ON batches (input_file) WHERE is_open = 1;
CREATE INDEX batches_by_end ON batches (topic_partition, ended) WHERE ended IS NOT NULL;

-- May come before its batch.
CREATE TABLE cancels (
    batch TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
)";

constexpr const char* upsert_file = R"(
INSERT INTO files (id, tenant, name, purpose, bytes, created) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, name = excluded.name, purpose = excluded.purpose, bytes = excluded.bytes,
    created = excluded.created
)";

constexpr const char* upsert_batch = R"(
INSERT INTO batches (id, tenant, key, created, topic_partition, state, is_open, ended, jobs_left, input_file, record)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, key = excluded.key, created = excluded.created,
    topic_partition = excluded.topic_partition, state = excluded.state, is_open = excluded.is_open, ended = excluded.ended,
    jobs_left = excluded.jobs_left, input_file = excluded.input_file, record = excluded.record
)";

constexpr std::string_view file_columns = "id, tenant, name, purpose, bytes, created";

FileRecord file_of(const Query& row) {
    return {.id = row.text(0),
            .tenant = row.text(1),
            .name = row.text(2),
            .purpose = row.text(3) == name_of(FilePurpose::batch) ? FilePurpose::batch : FilePurpose::batch_output,
            .bytes = row.integer(4),
            .created = row.integer(5)};
}

BatchRecord batch_of(const Query& row) {
    auto batch = parse_batch(row.text(0));
    CHECK(batch.has_value(), "only what parses is stored");
    return *std::move(batch);
}

BatchState batch_state_of(const std::string& name) {
    const auto state = batch_state_named(name);
    CHECK(state.has_value(), "states are stored by their names");
    return *state;
}

std::int64_t number_of(Query& query) {
    CHECK(query.step(), "a sum has a row");
    return query.integer(0);
}

// A page of `table`. One text for each combination, so that each begins in the middle of its index.
template <typename Record>
std::optional<Page<Record>> page_of(Database& database, std::string_view table, std::string_view columns, const ListQuery& query,
                                    Record (*record_of)(const Query&)) {
    std::optional<Seconds> created;
    if (query.after) {
        Query after = database.query(fmt::format("SELECT created FROM {} WHERE id = ? AND tenant = ?", table));
        after.bind(*query.after).bind(query.tenant);
        if (!after.step()) return std::nullopt;
        created = after.integer(0);
    }
    const std::string_view order = query.newest_first ? "DESC" : "ASC";
    Query rows = database.query(fmt::format("SELECT {} FROM {} WHERE tenant = ?{}{} ORDER BY created {}, id {} LIMIT ?", columns, table,
                                            !created             ? ""
                                            : query.newest_first ? " AND (created, id) < (?, ?)"
                                                                 : " AND (created, id) > (?, ?)",
                                            query.purpose ? " AND purpose = ?" : "", order, order));
    rows.bind(query.tenant);
    if (created) rows.bind(*created).bind(*query.after);
    if (query.purpose) rows.bind(name_of(*query.purpose));
    rows.bind(static_cast<std::int64_t>(query.limit) + 1);
    Page<Record> page;
    while (rows.step()) {
        page.has_more = page.records.size() == query.limit;
        if (!page.has_more) page.records.push_back(record_of(rows));
    }
    return page;
}

}  // namespace

std::int64_t BatchStore::Totals::batch_count() const {
    return std::accumulate(batches.begin(), batches.end(), std::int64_t{0},
                           [](std::int64_t sum, const auto& one) { return sum + one.second; });
}

BatchStore::BatchStore() {
    database_.execute(tables);
    using enum BatchState;
    for (const auto state : {validating, failed, in_progress, finalizing, completed, expired, cancelling, cancelled})
        totals_.batches[state] = 0;
}

void BatchStore::apply(const BatchUpdate& update) {
    Totals totals = totals_;
    Transaction transaction(database_);
    for (const BatchUpdate::File& change : update.files) {
        if (change.file)
            put(*change.file, totals);
        else
            remove_file(change.id, totals);
    }
    for (const BatchUpdate::Batch& change : update.batches) {
        if (change.batch)
            put(change, totals);
        else
            remove_batch(change.id, totals);
    }
    for (const BatchUpdate::Cancel& cancel : update.cancels) set_cancelled(cancel);
    transaction.commit();
    totals_ = std::move(totals);
}

void BatchStore::put(const FileRecord& file, Totals& totals) {
    if (Query old = database_.query("SELECT bytes FROM files WHERE id = ?"); old.bind(file.id).step()) {
        totals.file_bytes -= old.integer(0);
    } else {
        ++totals.files;
    }
    database_.query(upsert_file)
        .bind(file.id)
        .bind(file.tenant)
        .bind(file.name)
        .bind(name_of(file.purpose))
        .bind(file.bytes)
        .bind(file.created)
        .run();
    totals.file_bytes += file.bytes;
}

void BatchStore::remove_file(const std::string& id, Totals& totals) {
    Query removed = database_.query("DELETE FROM files WHERE id = ? RETURNING bytes");
    if (!removed.bind(id).step()) return;
    --totals.files;
    totals.file_bytes -= removed.integer(0);
    CHECK(!removed.step(), "an id has one row");
}

void BatchStore::put(const BatchUpdate::Batch& change, Totals& totals) {
    const BatchRecord& batch = *change.batch;
    CHECK(batch.id == change.id, "a batch is stored under its own id");
    if (Query old = database_.query("SELECT state, jobs_left FROM batches WHERE id = ?"); old.bind(batch.id).step()) {
        --totals.batches[batch_state_of(old.text(0))];
        totals.lines_waiting -= old.integer(1);
    }
    const bool is_open = !is_final(batch.state);
    const auto ended = batch.since.find(batch.state);
    database_.query(upsert_batch)
        .bind(batch.id)
        .bind(batch.tenant)
        .bind(batch.key)
        .bind(batch.created)
        .bind(std::int64_t{change.partition})
        .bind(name_of(batch.state))
        .bind(std::int64_t{is_open})
        .bind(is_open || ended == batch.since.end() ? std::nullopt : std::optional(ended->second))
        .bind(jobs_left(batch))
        .bind(batch.input_file)
        .bind(change.text)
        .run();
    ++totals.batches[batch.state];
    totals.lines_waiting += jobs_left(batch);
}

void BatchStore::remove_batch(const std::string& id, Totals& totals) {
    Query removed = database_.query("DELETE FROM batches WHERE id = ? RETURNING state, jobs_left");
    if (!removed.bind(id).step()) return;
    --totals.batches[batch_state_of(removed.text(0))];
    totals.lines_waiting -= removed.integer(1);
    CHECK(!removed.step(), "an id has one row");
}

void BatchStore::set_cancelled(const BatchUpdate::Cancel& cancel) {
    database_
        .query(cancel.is_asked_for ? "INSERT INTO cancels (batch) VALUES (?) ON CONFLICT DO NOTHING"
                                   : "DELETE FROM cancels WHERE batch = ?")
        .bind(cancel.batch)
        .run();
}

std::optional<FileRecord> BatchStore::file(const std::string& id) const {
    Query query = database_.query(fmt::format("SELECT {} FROM files WHERE id = ?", file_columns));
    return query.bind(id).step() ? std::optional(file_of(query)) : std::nullopt;
}

std::optional<BatchRecord> BatchStore::batch(const std::string& id) const {
    Query query = database_.query("SELECT record FROM batches WHERE id = ?");
    return query.bind(id).step() ? std::optional(batch_of(query)) : std::nullopt;
}

bool BatchStore::is_cancelled(const std::string& batch) const {
    return database_.query("SELECT 1 FROM cancels WHERE batch = ?").bind(batch).step();
}

std::optional<std::int32_t> BatchStore::partition_of(const std::string& batch) const {
    Query query = database_.query("SELECT topic_partition FROM batches WHERE id = ?");
    return query.bind(batch).step() ? std::optional(static_cast<std::int32_t>(query.integer(0))) : std::nullopt;
}

std::optional<Page<FileRecord>> BatchStore::files(const ListQuery& query) const {
    return page_of<FileRecord>(database_, "files", file_columns, query, file_of);
}

std::optional<Page<BatchRecord>> BatchStore::batches(const ListQuery& query) const {
    CHECK(!query.purpose, "files have a purpose, batches have none");
    return page_of<BatchRecord>(database_, "batches", "record", query, batch_of);
}

std::int64_t BatchStore::files_of(const std::string& tenant) const {
    return number_of(database_.query("SELECT count(*) FROM files WHERE tenant = ?").bind(tenant));
}

std::int64_t BatchStore::batches_of(const std::string& tenant) const {
    return number_of(database_.query("SELECT count(*) FROM batches WHERE tenant = ?").bind(tenant));
}

std::int64_t BatchStore::open_batches_of(const std::string& tenant) const {
    return number_of(database_.query("SELECT count(*) FROM batches WHERE is_open = 1 AND tenant = ?").bind(tenant));
}

std::int64_t BatchStore::key_jobs(const std::string& tenant, const std::string& key) const {
    Query query = database_.query("SELECT coalesce(sum(jobs_left), 0) FROM batches WHERE is_open = 1 AND tenant = ? AND key = ?");
    return number_of(query.bind(tenant).bind(key));
}

std::vector<std::string> BatchStore::open_ids(std::int32_t partition) const {
    std::vector<std::string> ids;
    Query query = database_.query("SELECT id FROM batches WHERE is_open = 1 AND topic_partition = ? ORDER BY id");
    query.bind(std::int64_t{partition});
    while (query.step()) ids.push_back(query.text(0));
    return ids;
}

std::vector<BatchRecord> BatchStore::open_batches(std::int32_t partition) const {
    std::vector<BatchRecord> open;
    Query query = database_.query("SELECT record FROM batches WHERE is_open = 1 AND topic_partition = ? ORDER BY id");
    query.bind(std::int64_t{partition});
    while (query.step()) open.push_back(batch_of(query));
    return open;
}

std::vector<std::string> BatchStore::ended_before(std::int32_t partition, Seconds time, std::size_t max) const {
    std::vector<std::string> ids;
    Query query = database_.query("SELECT id FROM batches WHERE topic_partition = ? AND ended < ? ORDER BY ended LIMIT ?");
    query.bind(std::int64_t{partition}).bind(time).bind(static_cast<std::int64_t>(max));
    while (query.step()) ids.push_back(query.text(0));
    return ids;
}

bool BatchStore::is_input(const std::string& file) const {
    return database_.query("SELECT 1 FROM batches WHERE is_open = 1 AND input_file = ?").bind(file).step();
}

std::unordered_set<std::string> BatchStore::contents_in_use() const {
    std::unordered_set<std::string> names;
    Query files = database_.query("SELECT id FROM files");
    while (files.step()) names.insert(files.text(0));
    Query open = database_.query("SELECT record FROM batches WHERE is_open = 1");
    while (open.step()) {
        BatchRecord batch = batch_of(open);
        names.insert(std::move(batch.input_file));
        for (std::string& part : batch.parts) names.insert(std::move(part));
        for (auto* file : {&batch.output_file, &batch.error_file}) {
            if (*file) names.insert(*std::move(*file));
        }
    }
    return names;
}

}  // namespace lorry::schema
