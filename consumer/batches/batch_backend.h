// The interfaces between the gateway and the code that keeps files and batches. FileStore has contents; it is implemented by
// consumer/batches/folder_store.h. BatchBackend has the records of files and batches; it is implemented by
// consumer/kafka/batches/batch_topics.h. Both are called by ops/gateway and consumer/batches, and may block: for a disk, or for brokers, up
// to ten seconds.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "schema/batch.h"

namespace lorry::consumer {

// Contents under names that the caller chose: letters, digits, '-', '_' and '.', and no '.' first. Each is written once and whole, by
// anyone, and read by anyone. All throw std::runtime_error when the store fails. Any thread.
class FileStore {
public:
    class Writer {
    public:
        virtual ~Writer() = default;  // drops what was not kept
        virtual void write(std::string_view bytes) = 0;
        // From now on it is there under its name, instead of an earlier one, and survives a crash. The last call.
        virtual void keep() = 0;
    };
    class Reader {
    public:
        virtual ~Reader() = default;
        // The next bytes, as many as fit; 0: the end.
        virtual std::size_t read(std::span<char> to) = 0;
    };
    virtual ~FileStore() = default;
    virtual std::unique_ptr<Writer> create(const std::string& name) = 0;
    // From that byte on. nullptr: it is not there.
    virtual std::unique_ptr<Reader> open(const std::string& name, std::int64_t from) = 0;
    // Nothing happens if it is not there.
    virtual void remove(const std::string& name) = 0;
    // The names of contents that were written longer ago than that. Also drops contents that were begun longer ago and never kept.
    virtual std::vector<std::string> older_than(std::chrono::seconds age) = 0;
};

// Thrown if something could not be written or read because the brokers do not answer. It may have been written.
class Unavailable : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Any thread. What was written is found afterwards, by this and by all others. All throw Unavailable.
class BatchBackend {
public:
    virtual ~BatchBackend() = default;
    // nullopt: there is none of that id, or it belongs to another tenant.
    virtual std::optional<schema::FileRecord> find_file(const std::string& tenant, const std::string& id) = 0;
    virtual std::optional<schema::BatchRecord> find_batch(const std::string& tenant, const std::string& id) = 0;
    // nullopt: there is nothing of the id `after`.
    virtual std::optional<schema::Page<schema::FileRecord>> list_files(const schema::ListQuery& query) = 0;
    virtual std::optional<schema::Page<schema::BatchRecord>> list_batches(const schema::ListQuery& query) = 0;
    // False: there are too many files, or batches.
    virtual bool add_file(const schema::FileRecord& file) = 0;
    virtual bool add_batch(const schema::BatchRecord& batch) = 0;
    // Jobs without a result of all batches of a key, as far as their records are known: a few seconds late. It does not block.
    virtual std::int64_t key_jobs(const std::string& tenant, const std::string& key) const = 0;
    // Whether a batch that has not ended reads it.
    virtual bool is_in_use(const schema::FileRecord& file) = 0;
    virtual void remove_file(const schema::FileRecord& file) = 0;
    // Its owner ends it soon, unless it has ended.
    virtual void cancel_batch(const schema::BatchRecord& batch) = 0;
};

}  // namespace lorry::consumer
