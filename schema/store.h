// The ledger's SQLite file: jobs and adapters as the topics tell of them (WAL, migrations, foreign keys). One process writes
// (lease), others read while it does. Called by consumer/ledger (writes) and ops/ (`lorry jobs`, `lorry adapters`: read).
// Behind it: store.cpp writes, store_query.cpp reads, store_schema.cpp has the tables, store_sqlite.cpp is the only one that sees SQLite.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "schema/completion.h"

namespace lorry::schema {

// How far a topic partition was applied; `next` is the offset to read next. Topic ids tell a recreated topic from the old one.
struct AppliedOffset {
    std::string topic;
    std::string topic_id;  // empty where the broker gives none
    std::int32_t partition = 0;
    std::int64_t next = 0;
};

// One transaction's worth of changes, applied with the offsets they came from. The statuses of one job (one source) may come in any
// order and more than once and give the same row: a terminal state wins over running, among running ones the later attempt, among
// terminal ones the one that finished first. Adapter changes are applied as they stand: the last of a name wins.
struct StoreUpdate {
    struct AdapterChange {
        std::string name;
        std::optional<AdapterRegistration> registration;  // nullopt: removed
    };
    std::vector<Status> statuses;
    std::vector<AdapterChange> adapters;
    std::vector<AppliedOffset> offsets;
};

struct JobFilter {
    std::optional<std::string> id;
    std::optional<std::string> batch_id;
    std::optional<JobState> state;
    std::optional<std::string> model;
    std::size_t limit = 100;  // newest first
};

struct JobCounts {
    std::int64_t running = 0;
    std::int64_t completed = 0;
    std::int64_t failed = 0;
    std::int64_t expired = 0;
    std::int64_t cancelled = 0;
    std::int64_t finished() const { return completed + failed + expired + cancelled; }
};

struct AdapterRow {
    AdapterRegistration registration;
    std::string state;  // "registered", "ready", "failed", "removed"
    std::string error;
    std::optional<Timestamp> updated;
};

class Store {
public:
    enum class Mode : std::uint8_t { reader, writer };

    // Opens, creating and migrating as needed (writer) or requiring the file (reader). Throws std::runtime_error with what to do when
    // another process holds the lease (FILE.lock; it ends with the process, also with a killed one), the file is no ledger, or its
    // schema is newer than this program's.
    static Store open(const std::filesystem::path& file, Mode mode);
    Store(Store&&) noexcept;
    Store& operator=(Store&&) noexcept;
    ~Store();

    // The cluster this ledger tells of, empty at first; setting another one empties all tables (the topics are read again). Setting an
    // empty one, where brokers give none, changes nothing.
    std::string cluster_id() const;
    void set_cluster_id(const std::string& cluster_id);
    std::vector<AppliedOffset> offsets() const;
    // An offset below the one already stored for the same topic id changes nothing: what it covers was applied.
    void apply(const StoreUpdate& update);
    // Forgets up to `max` jobs that ended before that time, the longest ago first; the number of them. What has no end stays.
    std::size_t forget_jobs(Timestamp before, std::size_t max);
    void reset();  // empties all tables but the cluster's id: the topics are read again from their start
    // "ready" or "failed" with the reason. Passed over when the name means another hash by now.
    void set_adapter_state(const std::string& name, const std::string& hash, const std::string& state, const std::string& error);

    // Newest first, by submission. Equal ids are a row each (by source), so the first is the one that counts.
    std::vector<Status> jobs(const JobFilter& filter) const;
    JobCounts count(const JobFilter& filter) const;  // the filter's limit plays no part
    // By name. "registered": not loaded by this worker yet.
    std::vector<AdapterRow> adapters() const;

private:
    struct Handle;
    explicit Store(std::unique_ptr<Handle> handle);
    std::unique_ptr<Handle> handle_;
};

}  // namespace lorry::schema
