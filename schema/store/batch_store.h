// What a gateway knows of files and batches: a SQLite view of the topics PREFIX.files and PREFIX.batches. Filled and asked by
// consumer/kafka/batches/batch_topics.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "schema/batch.h"
#include "schema/store/store_sqlite.h"

namespace lorry::schema {

// Changes for one transaction. The last one of an id wins.
struct BatchUpdate {
    struct File {
        std::string id;
        std::optional<FileRecord> file;  // nullopt: removed
    };
    struct Batch {
        std::string id;
        std::optional<BatchRecord> batch;  // nullopt: forgotten
        std::string text = {};             // that the batch was parsed from: encoding it again would take as long as storing it
        std::int32_t partition = 0;        // of the topic
    };
    struct Cancel {
        std::string batch;
        bool is_asked_for = true;
    };
    std::vector<File> files;
    std::vector<Batch> batches;
    std::vector<Cancel> cancels;
};

// The database is this object's alone, in a temporary file without a name: each process rebuilds it from the topics, and nothing
// of it is left afterwards. All throw std::runtime_error when the disk of temporary files fails. One thread at a time.
class BatchStore {
public:
    BatchStore();
    // All of it, or nothing if it throws.
    void apply(const BatchUpdate& update);

    std::optional<FileRecord> file(const std::string& id) const;
    std::optional<BatchRecord> batch(const std::string& id) const;
    bool is_cancelled(const std::string& batch) const;
    std::optional<std::int32_t> partition_of(const std::string& batch) const;
    // nullopt: the tenant has nothing of the id `after`.
    std::optional<Page<FileRecord>> files(const ListQuery& query) const;
    std::optional<Page<BatchRecord>> batches(const ListQuery& query) const;

    std::int64_t files_of(const std::string& tenant) const;
    std::int64_t batches_of(const std::string& tenant) const;
    // Those that have not ended.
    std::int64_t open_batches_of(const std::string& tenant) const;
    // Jobs without a result of a key's batches.
    std::int64_t key_jobs(const std::string& tenant, const std::string& key) const;
    // Of all tenants. It is kept, not counted.
    struct Totals {
        std::map<BatchState, std::int64_t> batches;  // of each state, also where there are none
        std::int64_t lines_waiting = 0;              // without a result yet; of batches whose lines were counted
        std::int64_t files = 0;
        std::int64_t file_bytes = 0;
        std::int64_t batch_count() const;
    };
    const Totals& totals() const { return totals_; }

    // Batches of a partition that have not ended, by id.
    std::vector<std::string> open_ids(std::int32_t partition) const;
    std::vector<BatchRecord> open_batches(std::int32_t partition) const;
    // Up to `max` batches of a partition that have ended before then, those first that ended first.
    std::vector<std::string> ended_before(std::int32_t partition, Seconds time, std::size_t max) const;
    // Whether a batch that has not ended reads the file.
    bool is_input(const std::string& file) const;
    // Contents that a file, or a batch that has not ended, names.
    std::unordered_set<std::string> contents_in_use() const;

private:
    void put(const FileRecord& file, Totals& totals);
    void put(const BatchUpdate::Batch& change, Totals& totals);
    void remove_file(const std::string& id, Totals& totals);
    void remove_batch(const std::string& id, Totals& totals);
    void set_cancelled(const BatchUpdate::Cancel& cancel);

    mutable Database database_{Database::Place::temporary_file};  // mutable, because reading prepares statements
    Totals totals_;
};

}  // namespace lorry::schema
