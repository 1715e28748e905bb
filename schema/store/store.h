// The ledger: a SQLite file of jobs, usage and adapters, built from the topics (WAL, migrations, foreign keys). One process writes it, with
// a lease; others read at the same time. Written by consumer/kafka/follow/ledger, read by `lorry jobs`, `lorry usage`, `lorry adapters` and
// gateways. Implemented in store.cpp (writing), store_query.cpp and store_usage.cpp (reading), store_schema.cpp (tables) and
// store_sqlite.cpp, the only file that includes SQLite.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "schema/completion.h"
#include "schema/store/usage.h"

namespace lorry::schema {

// How far a topic partition was applied; `next` is the offset to read next. Topic ids distinguish a recreated topic from the old one.
struct AppliedOffset {
    std::string topic;
    std::string topic_id;  // empty where the broker gives none
    std::int32_t partition = 0;
    std::int64_t next = 0;
};

// Changes for one transaction, applied together with the offsets that they came from. The statuses of one job (one source) may come in any
// order and more than once, and give the same row: a terminal state wins over running, the later attempt among running states, the one
// that finished first among terminal states. Adapter changes are applied in order: the last of a name wins.
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

    // A writer creates and migrates the file as needed; a reader requires it. Throws std::runtime_error, which says what to do, if another
    // process holds the lease (FILE.lock, released when that process ends, even if killed), if the file is not a ledger, or if its schema
    // is newer than this program's.
    static Store open(const std::filesystem::path& file, Mode mode);
    Store(Store&&) noexcept;
    Store& operator=(Store&&) noexcept;
    ~Store();

    // The id of the cluster that this ledger describes, empty at first. Setting a different id empties all tables but usage, so that the
    // topics are read again. Setting an empty id changes nothing: not all brokers give ids.
    std::string cluster_id() const;
    void set_cluster_id(const std::string& cluster_id);
    std::vector<AppliedOffset> offsets() const;
    // An offset below the one already stored for the same topic id changes nothing: its records were applied.
    void apply(const StoreUpdate& update);
    // Sums up the usage of all days that ended before that time. Call it when all statuses of jobs that ended by then were applied: usage
    // does not count later ones. The sums stay when jobs are deleted, and on reset().
    void close_days(Timestamp before);
    Timestamp closed_until() const;  // the start of the first day that was not closed
    // Deletes up to `max` jobs that ended before that time and on closed days, the oldest first, and returns their number. Unfinished jobs
    // stay.
    std::size_t forget_jobs(Timestamp before, std::size_t max);
    // Empties all tables but usage, and keeps the cluster's id: the topics are read again from their start.
    void reset();
    // "ready", or "failed" with the reason. Ignored if the name has another hash by now.
    void set_adapter_state(const std::string& name, const std::string& hash, const std::string& state, const std::string& error);

    // Newest first, by submission. Jobs with equal ids have a row each (by source); the first of them counts.
    std::vector<Status> jobs(const JobFilter& filter) const;
    JobCounts count(const JobFilter& filter) const;  // ignores the filter's limit
    // By day, tenant, key, model and adapter.
    std::vector<UsageRow> usage(const UsageFilter& filter) const;
    // By name. "registered": not loaded by this worker yet.
    std::vector<AdapterRow> adapters() const;

private:
    struct Handle;
    explicit Store(std::unique_ptr<Handle> handle);
    std::unique_ptr<Handle> handle_;
};

}  // namespace lorry::schema
