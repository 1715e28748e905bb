// A BatchBackend over the topics of files and batches. Both are followed, so all gateways know the same. Made by `lorry serve`
// and `lorry up`.
//
// Records of batches are written by the gateway that creates one, and from then on by its owner alone (batch_owner.h). A cancel is a record
// of its own, "BATCH/cancel" in the batch's partition, so that it cannot undo what the owner writes at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "consumer/batches/batch_backend.h"
#include "consumer/kafka/config.h"
#include "consumer/kafka/follow/record_writer.h"
#include "consumer/seams.h"
#include "schema/store/batch_store.h"
#include "schema/topics.h"

namespace lorry::consumer {

class TopicFollower;

// The key of the record that asks for a batch's end.
std::string cancel_key(const std::string& batch);

class BatchTopics final : public BatchBackend {
public:
    // Of each kind. Each process reads all of them when it starts, in 25 µs each, into a temporary file: 2.2 KB a batch, 0.2 KB a file.
    static constexpr std::int64_t records_max = 200'000;
    // Of each kind, of one tenant: so that no tenant uses up what there is for all. A few more may come in while records are written.
    static constexpr std::int64_t tenant_records_max = 10'000;
    // Of one tenant, that have not ended: each costs its owner memory and time.
    static constexpr std::int64_t tenant_open_batches_max = 200;

    // Starts reading. Throws KafkaError when the brokers do not answer or a topic does not exist.
    BatchTopics(const KafkaConfig& config, const schema::Topics& topics);
    ~BatchTopics() override;

    // Call before serving. Throws KafkaError at the deadline.
    void wait_until_read(Clock::time_point deadline);
    // Throws the exception that ended a follower, if any.
    void check() const;

    std::optional<schema::FileRecord> find_file(const std::string& tenant, const std::string& id) override;
    std::optional<schema::BatchRecord> find_batch(const std::string& tenant, const std::string& id) override;
    std::optional<schema::Page<schema::FileRecord>> list_files(const schema::ListQuery& query) override;
    std::optional<schema::Page<schema::BatchRecord>> list_batches(const schema::ListQuery& query) override;
    bool add_file(const schema::FileRecord& file) override;
    bool add_batch(const schema::BatchRecord& batch) override;
    std::int64_t key_jobs(const std::string& tenant, const std::string& key) const override;
    bool is_in_use(const schema::FileRecord& file) override;
    void remove_file(const schema::FileRecord& file) override;
    void cancel_batch(const schema::BatchRecord& batch) override;

    // The id of the folder that has the contents, as the first record says that names one. nullopt: none does.
    std::optional<std::string> folder_id() const;
    // Names it, unless another gateway was first. Throws Unavailable.
    void name_folder(const std::string& id);
    std::string files_topic() const { return topics_.files(); }
    // What is known, of all gateways: what this one has read.
    using Stats = schema::BatchStore::Totals;
    Stats stats() const;
    // For the owner of a partition: its batches that have not ended, as far as they were read. Their ids cost little, so it may ask often.
    std::vector<std::string> open_ids(std::int32_t partition) const;
    std::vector<schema::BatchRecord> open_batches(std::int32_t partition) const;
    // nullopt: it has ended.
    std::optional<schema::BatchRecord> open_batch(const std::string& id) const;
    bool is_cancelled(const std::string& batch) const;
    // Up to `max` that have ended before then, the oldest first.
    std::vector<std::string> ended_before(std::int32_t partition, schema::Seconds time, std::size_t max) const;
    // Contents that a file or an open batch names.
    std::unordered_set<std::string> contents_in_use() const;

private:
    void apply_files(const std::vector<schema::JobRecord>& records);
    void apply_batches(const std::vector<schema::JobRecord>& records);
    // What `ask` returns of what is known. Throws Unavailable.
    template <typename Ask>
    auto known(const Ask& ask) const;
    // Throws Unavailable.
    void write(const RecordWriter::Record& record);
    // Until all that was written before this call is known. Throws Unavailable.
    void read_files();
    void read_batches();

    const schema::Topics topics_;
    RecordWriter writer_;
    mutable std::mutex mutex_;
    // Guarded by mutex_.
    schema::BatchStore store_;
    std::optional<std::string> folder_id_;

    std::unique_ptr<TopicFollower> file_follower_;  // last: their threads call apply_…
    std::unique_ptr<TopicFollower> batch_follower_;
};

}  // namespace lorry::consumer
