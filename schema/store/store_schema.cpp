// Migrations: step i brings PRAGMA user_version from i to i + 1. Released steps are never changed; new ones are added.
#include "schema/store/store_schema.h"

#include <fmt/format.h>
#include <iterator>
#include <stdexcept>

namespace lorry::schema {
namespace {

constexpr std::int64_t application_id = 0x4c6f7279;  // "Lory": distinguishes a ledger from other SQLite files

constexpr const char* migrations[] = {
    R"(
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- How far each topic partition was applied.
CREATE TABLE offsets (
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    topic_id TEXT NOT NULL,
    next INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)
) STRICT, WITHOUT ROWID;

-- A job is its source; ids may repeat. Times are ms since the epoch, attempt is µs.
CREATE TABLE jobs (
    source_topic TEXT NOT NULL,
    source_partition INTEGER NOT NULL,
    source_offset INTEGER NOT NULL,
    id TEXT NOT NULL,
    batch_id TEXT,
    state TEXT NOT NULL CHECK (state IN ('running', 'completed', 'failed', 'expired', 'cancelled')),
    model TEXT,
    adapter TEXT,
    worker TEXT,
    attempt INTEGER NOT NULL,
    submitted_at INTEGER,
    started_at INTEGER,
    finished_at INTEGER,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    error TEXT,
    PRIMARY KEY (source_topic, source_partition, source_offset)
) STRICT;
CREATE INDEX jobs_by_id ON jobs (id);
CREATE INDEX jobs_by_batch ON jobs (batch_id, state);
CREATE INDEX jobs_by_state ON jobs (state);
CREATE INDEX jobs_by_model ON jobs (model, state);
CREATE INDEX jobs_by_time ON jobs (coalesce(submitted_at, started_at, finished_at, 0));

CREATE TABLE adapters (
    name TEXT PRIMARY KEY,
    hash TEXT NOT NULL,
    path TEXT NOT NULL,
    base TEXT,
    rank INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('registered', 'ready', 'failed', 'removed')),
    error TEXT,
    registered_at INTEGER,
    updated_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE adapter_targets (
    adapter TEXT NOT NULL REFERENCES adapters (name) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    target TEXT NOT NULL,
    PRIMARY KEY (adapter, position)
) STRICT, WITHOUT ROWID;
)",
    // Jobs are deleted by the time at which they ended.
    "CREATE INDEX jobs_by_end ON jobs (finished_at) WHERE state <> 'running';",
    R"(
ALTER TABLE jobs ADD COLUMN tenant TEXT;
ALTER TABLE jobs ADD COLUMN key TEXT;
-- Sums over the jobs of the days that are closed: those before meta's usage_closed. Days since the epoch, in UTC.
CREATE TABLE usage (
    day INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    model TEXT NOT NULL,
    adapter TEXT NOT NULL,
    jobs INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    PRIMARY KEY (day, tenant, key, model, adapter)
) STRICT, WITHOUT ROWID;
)",
};
constexpr std::int64_t version_here = std::size(migrations);

[[noreturn]] void refuse(const Database& database, std::string_view why) {
    throw std::runtime_error(fmt::format("{}: {}", database.file().string(), why));
}

// The file's version; 0: an empty file.
std::int64_t checked_version(Database& database) {
    const std::int64_t version = database.integer_pragma("user_version");
    const std::int64_t owner = database.integer_pragma("application_id");
    Query tables = database.query("SELECT count(*) FROM sqlite_schema");
    const bool is_empty = tables.step() && tables.integer(0) == 0;
    if (version < 0 || (owner != application_id && !(is_empty && owner == 0 && version == 0))) {
        refuse(database, "this SQLite file is not a ledger of lorry's; give another path, it is left as it is");
    }
    if (version > version_here) {
        refuse(database, fmt::format("the ledger has schema version {}, this program knows up to {}; use a newer lorry, or move the file "
                                     "aside while no worker runs: it is rebuilt from the topics",
                                     version, version_here));
    }
    return version;
}

}  // namespace

void migrate(Database& database) {
    const std::int64_t found = checked_version(database);
    // After the check: setting WAL writes to the file, and files of other programs must stay unchanged. NORMAL: a power failure may lose
    // the last transactions, rows and offsets alike, which are then read again from the topics.
    database.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;");
    for (std::int64_t version = found; version < version_here; ++version) {
        Transaction transaction(database);
        database.execute(migrations[version]);
        database.execute(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", application_id, version + 1));
        transaction.commit();
    }
}

void require_current_schema(Database& database) {
    const std::int64_t version = checked_version(database);
    if (version < version_here) {
        refuse(database, fmt::format("the ledger has schema version {}, this program reads {}; start a worker of this version on it once",
                                     version, version_here));
    }
}

}  // namespace lorry::schema
