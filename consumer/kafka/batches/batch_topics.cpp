// Applies records to the views. What is not found is looked for again after all that was written is read: another gateway may have just
// written it.
#include "consumer/kafka/batches/batch_topics.h"

#include <algorithm>
#include <functional>
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
    } catch (const KafkaError& error) {
        throw Unavailable(error.what());
    }
}

}  // namespace

std::string cancel_key(const std::string& batch) { return batch + std::string(cancel_suffix); }

BatchTopics::BatchTopics(const KafkaConfig& config, const schema::Topics& topics) : topics_(topics), writer_(config) {
    // Owners write in transactions, gateways without: what a client was told must be read even if it is behind an open transaction.
    const auto follow = [&](const std::string& topic, std::function<void(const schema::JobRecord&)> apply) {
        return std::make_unique<TopicFollower>(config, topic, std::move(apply), std::nullopt, RecordReader::Beginning{},
                                               RecordReader::EndKind::written);
    };
    file_follower_ = follow(topics.files(), [this](const schema::JobRecord& record) { apply_file(record); });
    batch_follower_ = follow(topics.batches(), [this](const schema::JobRecord& record) { apply_batch(record); });
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

void BatchTopics::apply_file(const schema::JobRecord& record) {
    if (record.key && record.key->starts_with(folder_prefix)) {
        const std::lock_guard lock(mutex_);
        if (record.value && !folder_id_) folder_id_ = record.key->substr(folder_prefix.size());
        return;
    }
    auto file = read_keyed(record, schema::parse_file);
    if (!file) return warn_of(record, file.error());
    const std::lock_guard lock(mutex_);
    if (*file)
        files_.put(**std::move(file));
    else
        files_.erase(record.key.value_or(""));
}

void BatchTopics::apply_batch(const schema::JobRecord& record) {
    std::string id = record.key.value_or("");
    if (id.ends_with(cancel_suffix)) {
        id.resize(id.size() - cancel_suffix.size());
        const std::lock_guard lock(mutex_);
        if (record.value)
            cancelled_.insert(std::move(id));
        else
            cancelled_.erase(id);
        return;
    }
    auto batch = read_keyed(record, schema::parse_batch);
    if (!batch) return warn_of(record, batch.error());
    const std::lock_guard lock(mutex_);
    open_.erase(id);
    if (*batch) {
        if (!schema::is_final((*batch)->state)) open_.insert(id);
        partition_of_[id] = record.source.partition;
        batches_.put(**std::move(batch));
    } else {
        partition_of_.erase(id);
        batches_.erase(id);
    }
}

std::optional<schema::FileRecord> BatchTopics::find_file(const std::string& tenant, const std::string& id) {
    for (const bool is_last : {false, true}) {
        {
            const std::lock_guard lock(mutex_);
            const schema::FileRecord* file = files_.find(id);
            if (file != nullptr) return file->tenant == tenant ? std::optional(*file) : std::nullopt;
        }
        if (!is_last) read_files();
    }
    return std::nullopt;
}

std::optional<schema::BatchRecord> BatchTopics::find_batch(const std::string& tenant, const std::string& id) {
    for (const bool is_last : {false, true}) {
        {
            const std::lock_guard lock(mutex_);
            const schema::BatchRecord* batch = batches_.find(id);
            if (batch != nullptr) {
                if (batch->tenant != tenant) return std::nullopt;
                schema::BatchRecord shown = *batch;
                // Until its owner has seen it.
                if (cancelled_.contains(id) &&
                    (shown.state == schema::BatchState::validating || shown.state == schema::BatchState::in_progress))
                    shown.state = schema::BatchState::cancelling;
                return shown;
            }
        }
        if (!is_last) read_batches();
    }
    return std::nullopt;
}

std::optional<Page<schema::FileRecord>> BatchTopics::list_files(const ListQuery& query) {
    read_files();
    const std::lock_guard lock(mutex_);
    return files_.page(query, [&](const schema::FileRecord& file) { return !query.purpose || file.purpose == *query.purpose; });
}

std::optional<Page<schema::BatchRecord>> BatchTopics::list_batches(const ListQuery& query) {
    read_batches();
    const std::lock_guard lock(mutex_);
    return batches_.page(query, [](const schema::BatchRecord&) { return true; });
}

bool BatchTopics::add_file(const schema::FileRecord& file) {
    {
        const std::lock_guard lock(mutex_);
        if (files_.size() >= records_max || files_.count(file.tenant) >= tenant_records_max) return false;
    }
    write({.topic = topics_.files(), .partition = std::nullopt, .key = file.id, .value = schema::encode_file(file)});
    return true;
}

bool BatchTopics::add_batch(const schema::BatchRecord& batch) {
    {
        const std::lock_guard lock(mutex_);
        if (batches_.size() >= records_max || batches_.count(batch.tenant) >= tenant_records_max) return false;
        const auto is_tenants = [&](const std::string& id) { return batches_.find(id)->tenant == batch.tenant; };
        if (std::ranges::count_if(open_, is_tenants) >= tenant_open_batches_max) return false;
    }
    write({.topic = topics_.batches(), .partition = std::nullopt, .key = batch.id, .value = schema::encode_batch(batch)});
    return true;
}

std::int64_t BatchTopics::key_jobs(const std::string& tenant, const std::string& key) const {
    std::int64_t jobs = 0;
    const std::lock_guard lock(mutex_);
    for (const std::string& id : open_) {
        const schema::BatchRecord& batch = *batches_.find(id);
        if (batch.tenant == tenant && batch.key == key) jobs += schema::jobs_left(batch);
    }
    return jobs;
}

bool BatchTopics::is_in_use(const schema::FileRecord& file) {
    read_batches();
    const std::lock_guard lock(mutex_);
    for (const std::string& id : open_) {
        if (batches_.find(id)->input_file == file.id) return true;
    }
    return false;
}

void BatchTopics::remove_file(const schema::FileRecord& file) {
    write({.topic = topics_.files(), .partition = std::nullopt, .key = file.id, .value = std::nullopt});
    read_files();
}

void BatchTopics::cancel_batch(const schema::BatchRecord& batch) {
    std::optional<std::int32_t> partition;
    {
        const std::lock_guard lock(mutex_);
        const auto place = partition_of_.find(batch.id);
        if (place == partition_of_.end()) return;
        partition = place->second;
    }
    write({.topic = topics_.batches(), .partition = partition, .key = cancel_key(batch.id), .value = "{}"});
    read_batches();
}

BatchTopics::Stats BatchTopics::stats() const {
    Stats stats;
    using enum schema::BatchState;
    for (const auto state : {validating, failed, in_progress, finalizing, completed, expired, cancelling, cancelled})
        stats.batches[state] = 0;
    const std::lock_guard lock(mutex_);
    batches_.each([&](const schema::BatchRecord& batch) {
        ++stats.batches[batch.state];
        if (!schema::is_final(batch.state)) stats.lines_waiting += schema::jobs_left(batch);
    });
    files_.each([&](const schema::FileRecord& file) { stats.file_bytes += file.bytes; });
    stats.files = static_cast<std::int64_t>(files_.size());
    return stats;
}

std::optional<std::string> BatchTopics::folder_id() const {
    const std::lock_guard lock(mutex_);
    return folder_id_;
}

void BatchTopics::name_folder(const std::string& id) {
    write({.topic = topics_.files(), .partition = folder_partition, .key = std::string(folder_prefix) + id, .value = "{}"});
    read_files();
}

std::vector<schema::BatchRecord> BatchTopics::open_batches(std::int32_t partition) const {
    std::vector<schema::BatchRecord> found;
    const std::lock_guard lock(mutex_);
    for (const std::string& id : open_) {
        if (partition_of_.at(id) == partition) found.push_back(*batches_.find(id));
    }
    return found;
}

bool BatchTopics::is_cancelled(const std::string& batch) const {
    const std::lock_guard lock(mutex_);
    return cancelled_.contains(batch);
}

std::vector<std::string> BatchTopics::ended_before(std::int32_t partition, schema::Seconds time) const {
    std::vector<std::string> found;
    const std::lock_guard lock(mutex_);
    batches_.each([&](const schema::BatchRecord& batch) {
        const auto ended = batch.since.find(batch.state);
        if (schema::is_final(batch.state) && partition_of_.at(batch.id) == partition && ended != batch.since.end() && ended->second < time)
            found.push_back(batch.id);
    });
    return found;
}

std::unordered_set<std::string> BatchTopics::contents_in_use() const {
    std::unordered_set<std::string> names;
    const std::lock_guard lock(mutex_);
    files_.each([&](const schema::FileRecord& file) { names.insert(file.id); });
    for (const std::string& id : open_) {
        const schema::BatchRecord& batch = *batches_.find(id);
        names.insert(batch.input_file);
        names.insert(batch.parts.begin(), batch.parts.end());
        for (const auto* file : {&batch.output_file, &batch.error_file}) {
            if (*file) names.insert(**file);
        }
    }
    return names;
}

}  // namespace lorry::consumer
