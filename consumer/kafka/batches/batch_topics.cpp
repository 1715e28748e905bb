// Applies records to their view. What is not found is looked for again after all that was written is read: another gateway may have just
// written it.
#include "consumer/kafka/batches/batch_topics.h"

#include <utility>

#include "consumer/kafka/follow/follower.h"
#include "consumer/kafka/follow/keyed_record.h"

namespace lorry::consumer {
namespace {

constexpr std::string_view cancel_suffix = "/cancel";
// Before the id, in the key of a record of the topic of files. Each id has a key of its own and all are in one partition, so that all
// gateways agree on which one was first, also after compaction.
constexpr std::string_view folder_prefix = "folder/";
constexpr std::int32_t folder_partition = 0;
constexpr std::chrono::seconds read_patience{10};

void wait(TopicFollower& follower) {
    try {
        follower.wait_until_read(Clock::now() + read_patience);
    } catch (const std::runtime_error& error) {
        throw Unavailable(error.what());
    }
}

}  // namespace

std::string cancel_key(const std::string& batch) { return batch + std::string(cancel_suffix); }

BatchTopics::BatchTopics(const KafkaConfig& config, const schema::Topics& topics) : topics_(topics), writer_(config) {
    // Owners write in transactions, gateways without: what a client was told must be read even if it is behind an open transaction.
    const auto follow = [&](const std::string& topic, TopicFollower::Apply apply) {
        return std::make_unique<TopicFollower>(config, topic, std::move(apply), std::nullopt, RecordReader::Beginning{},
                                               RecordReader::EndKind::written);
    };
    file_follower_ = follow(topics.files(), [this](const auto& records) { apply_files(records); });
    batch_follower_ = follow(topics.batches(), [this](const auto& records) { apply_batches(records); });
}

BatchTopics::~BatchTopics() = default;

void BatchTopics::wait_until_read(Clock::time_point deadline) {
    file_follower_->wait_until_read(deadline);
    batch_follower_->wait_until_read(deadline);
}

void BatchTopics::check() const {
    file_follower_->check();
    batch_follower_->check();
}

void BatchTopics::write(const RecordWriter::Record& record) {
    try {
        writer_.write(record);
    } catch (const KafkaError& error) {
        throw Unavailable(error.what());
    }
}

void BatchTopics::read_files() { wait(*file_follower_); }
void BatchTopics::read_batches() { wait(*batch_follower_); }

void BatchTopics::apply_files(const std::vector<schema::JobRecord>& records) {
    schema::BatchUpdate update;
    std::optional<std::string> folder;
    for (const schema::JobRecord& record : records) {
        const std::string id = record.key.value_or("");
        if (id.starts_with(folder_prefix)) {
            if (record.value && !folder) folder = id.substr(folder_prefix.size());
            continue;
        }
        auto file = read_keyed(record, schema::parse_file);
        if (file)
            update.files.push_back({.id = id, .file = *std::move(file)});
        else
            warn_of(record, file.error());
    }
    const std::lock_guard lock(mutex_);
    store_.apply(update);
    if (!folder_id_) folder_id_ = std::move(folder);
}

void BatchTopics::apply_batches(const std::vector<schema::JobRecord>& records) {
    schema::BatchUpdate update;
    for (const schema::JobRecord& record : records) {
        std::string id = record.key.value_or("");
        if (id.ends_with(cancel_suffix)) {
            id.resize(id.size() - cancel_suffix.size());
            update.cancels.push_back({.batch = std::move(id), .is_asked_for = record.value.has_value()});
            continue;
        }
        auto batch = read_keyed(record, schema::parse_batch);
        if (!batch) {
            warn_of(record, batch.error());
            continue;
        }
        update.batches.push_back(
            {.id = std::move(id), .batch = *std::move(batch), .text = record.value.value_or(""), .partition = record.source.partition});
    }
    const std::lock_guard lock(mutex_);
    store_.apply(update);
}

template <typename Ask>
auto BatchTopics::known(const Ask& ask) const {
    const std::lock_guard lock(mutex_);
    try {
        return ask(store_);
    } catch (const std::runtime_error& error) {
        throw Unavailable(error.what());
    }
}

std::optional<schema::FileRecord> BatchTopics::find_file(const std::string& tenant, const std::string& id) {
    for (const bool is_last : {false, true}) {
        auto file = known([&](const auto& store) { return store.file(id); });
        if (file) return file->tenant == tenant ? std::move(file) : std::nullopt;
        if (!is_last) read_files();
    }
    return std::nullopt;
}

std::optional<schema::BatchRecord> BatchTopics::find_batch(const std::string& tenant, const std::string& id) {
    using enum schema::BatchState;
    for (const bool is_last : {false, true}) {
        auto batch = known([&](const auto& store) {
            auto found = store.batch(id);
            // Until its owner has seen it.
            if (found && (found->state == validating || found->state == in_progress) && store.is_cancelled(id)) found->state = cancelling;
            return found;
        });
        if (batch) return batch->tenant == tenant ? std::move(batch) : std::nullopt;
        if (!is_last) read_batches();
    }
    return std::nullopt;
}

std::optional<schema::Page<schema::FileRecord>> BatchTopics::list_files(const schema::ListQuery& query) {
    read_files();
    return known([&](const auto& store) { return store.files(query); });
}

std::optional<schema::Page<schema::BatchRecord>> BatchTopics::list_batches(const schema::ListQuery& query) {
    read_batches();
    return known([&](const auto& store) { return store.batches(query); });
}

bool BatchTopics::add_file(const schema::FileRecord& file) {
    const bool is_full =
        known([&](const auto& store) { return store.totals().files >= records_max || store.files_of(file.tenant) >= tenant_records_max; });
    if (is_full) return false;
    write({.topic = topics_.files(), .partition = std::nullopt, .key = file.id, .value = schema::encode_file(file)});
    return true;
}

bool BatchTopics::add_batch(const schema::BatchRecord& batch) {
    const bool is_full = known([&](const auto& store) {
        return store.totals().batch_count() >= records_max || store.batches_of(batch.tenant) >= tenant_records_max ||
               store.open_batches_of(batch.tenant) >= tenant_open_batches_max;
    });
    if (is_full) return false;
    write({.topic = topics_.batches(), .partition = std::nullopt, .key = batch.id, .value = schema::encode_batch(batch)});
    return true;
}

std::int64_t BatchTopics::key_jobs(const std::string& tenant, const std::string& key) const {
    return known([&](const auto& store) { return store.key_jobs(tenant, key); });
}

bool BatchTopics::is_in_use(const schema::FileRecord& file) {
    read_batches();
    return known([&](const auto& store) { return store.is_input(file.id); });
}

void BatchTopics::remove_file(const schema::FileRecord& file) {
    write({.topic = topics_.files(), .partition = std::nullopt, .key = file.id, .value = std::nullopt});
    read_files();
}

void BatchTopics::cancel_batch(const schema::BatchRecord& batch) {
    const auto partition = known([&](const auto& store) { return store.partition_of(batch.id); });
    if (!partition) return;
    write({.topic = topics_.batches(), .partition = partition, .key = cancel_key(batch.id), .value = "{}"});
    read_batches();
}

BatchTopics::Stats BatchTopics::stats() const {
    return known([](const auto& store) { return store.totals(); });
}

std::optional<std::string> BatchTopics::folder_id() const {
    const std::lock_guard lock(mutex_);
    return folder_id_;
}

void BatchTopics::name_folder(const std::string& id) {
    write({.topic = topics_.files(), .partition = folder_partition, .key = std::string(folder_prefix) + id, .value = "{}"});
    read_files();
}

std::vector<std::string> BatchTopics::open_ids(std::int32_t partition) const {
    return known([&](const auto& store) { return store.open_ids(partition); });
}

std::vector<schema::BatchRecord> BatchTopics::open_batches(std::int32_t partition) const {
    return known([&](const auto& store) { return store.open_batches(partition); });
}

std::optional<schema::BatchRecord> BatchTopics::open_batch(const std::string& id) const {
    auto batch = known([&](const auto& store) { return store.batch(id); });
    return batch && !schema::is_final(batch->state) ? std::move(batch) : std::nullopt;
}

bool BatchTopics::is_cancelled(const std::string& batch) const {
    return known([&](const auto& store) { return store.is_cancelled(batch); });
}

std::vector<std::string> BatchTopics::ended_before(std::int32_t partition, schema::Seconds time, std::size_t max) const {
    return known([&](const auto& store) { return store.ended_before(partition, time, max); });
}

std::unordered_set<std::string> BatchTopics::contents_in_use() const {
    return known([](const auto& store) { return store.contents_in_use(); });
}

}  // namespace lorry::consumer
