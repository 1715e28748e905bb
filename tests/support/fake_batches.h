// Files and batches in memory: a FileStore and a BatchBackend that tests look into and break. Used by tests of ops/gateway and
// consumer/batches, and by a fuzz target.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "consumer/batches/batch_backend.h"

namespace lorry::tests {

class MemoryStore final : public consumer::FileStore {
public:
    std::map<std::string, std::string> contents() const {
        const std::lock_guard lock(mutex_);
        return contents_;
    }
    void put(const std::string& name, std::string content) {
        const std::lock_guard lock(mutex_);
        contents_[name] = std::move(content);
    }
    void clear() {
        const std::lock_guard lock(mutex_);
        contents_.clear();
    }
    std::atomic<bool> is_full = false;        // writing fails
    std::atomic<bool> is_unreadable = false;  // opening fails
    std::atomic<int> open_readers = 0;
    std::function<void()> at_write = [] {};  // before each content is kept or removed

    std::unique_ptr<Writer> create(const std::string& name) override { return std::make_unique<MemoryWriter>(*this, name); }
    std::unique_ptr<Reader> open(const std::string& name, std::int64_t from) override {
        if (is_unreadable) throw std::runtime_error("input/output error");
        const std::lock_guard lock(mutex_);
        const auto place = contents_.find(name);
        if (place == contents_.end()) return nullptr;
        return std::make_unique<MemoryReader>(open_readers,
                                              place->second.substr(std::min(place->second.size(), static_cast<std::size_t>(from))));
    }
    void remove(const std::string& name) override {
        at_write();
        const std::lock_guard lock(mutex_);
        contents_.erase(name);
    }
    std::vector<std::string> older_than(std::chrono::seconds) override {
        std::vector<std::string> names;
        for (const auto& [name, content] : contents()) names.push_back(name);
        return names;
    }

private:
    class MemoryWriter final : public Writer {
    public:
        MemoryWriter(MemoryStore& store, std::string name) : store_(store), name_(std::move(name)) {}
        void write(std::string_view bytes) override {
            if (store_.is_full) throw std::runtime_error("no space left");
            content_ += bytes;
        }
        void keep() override {
            store_.at_write();
            store_.put(name_, std::move(content_));
        }

    private:
        MemoryStore& store_;
        const std::string name_;
        std::string content_;
    };
    class MemoryReader final : public Reader {
    public:
        MemoryReader(std::atomic<int>& count, std::string content) : count_(count), content_(std::move(content)) { ++count_; }
        ~MemoryReader() override { --count_; }
        std::size_t read(std::span<char> to) override {
            const std::size_t bytes = std::min(to.size(), content_.size() - at_);
            std::copy_n(content_.begin() + static_cast<std::ptrdiff_t>(at_), bytes, to.begin());
            at_ += bytes;
            return bytes;
        }

    private:
        std::atomic<int>& count_;
        const std::string content_;
        std::size_t at_ = 0;
    };

    mutable std::mutex mutex_;
    std::map<std::string, std::string> contents_;  // guarded by mutex_
};

class FakeBatches final : public consumer::BatchBackend {
public:
    std::atomic<bool> is_away = false;
    std::atomic<bool> is_full = false;
    std::atomic<bool> in_use = false;

    std::optional<schema::FileRecord> find_file(const std::string& tenant, const std::string& id) override {
        return find(files_, tenant, id);
    }
    std::optional<schema::BatchRecord> find_batch(const std::string& tenant, const std::string& id) override {
        return find(batches_, tenant, id);
    }
    std::optional<schema::Page<schema::FileRecord>> list_files(const schema::ListQuery& query) override {
        return list(files_, query, [&](const schema::FileRecord& file) { return !query.purpose || file.purpose == *query.purpose; });
    }
    std::optional<schema::Page<schema::BatchRecord>> list_batches(const schema::ListQuery& query) override {
        return list(batches_, query, [](const schema::BatchRecord&) { return true; });
    }
    bool add_file(const schema::FileRecord& file) override { return add(files_, file); }
    bool add_batch(const schema::BatchRecord& batch) override { return add(batches_, batch); }
    std::int64_t key_jobs(const std::string&, const std::string& key) const override {
        const std::lock_guard lock(mutex_);
        std::int64_t jobs = 0;
        for (const schema::BatchRecord& batch : batches_) jobs += batch.key == key ? schema::jobs_left(batch) : 0;
        return jobs;
    }
    bool is_in_use(const schema::FileRecord&) override { return in_use; }
    void remove_file(const schema::FileRecord& file) override {
        const std::lock_guard lock(mutex_);
        std::erase_if(files_, [&](const auto& each) { return each.id == file.id; });
    }
    void cancel_batch(const schema::BatchRecord& batch) override {
        const std::lock_guard lock(mutex_);
        cancelled_.push_back(batch.id);
    }
    std::vector<schema::FileRecord> files() const {
        const std::lock_guard lock(mutex_);
        return files_;
    }
    void clear() {
        const std::lock_guard lock(mutex_);
        files_.clear();
        batches_.clear();
        cancelled_.clear();
    }
    std::vector<schema::BatchRecord> batches() const {
        const std::lock_guard lock(mutex_);
        return batches_;
    }
    std::vector<std::string> cancelled() const {
        const std::lock_guard lock(mutex_);
        return cancelled_;
    }
    void set_lines(std::int64_t lines) {
        const std::lock_guard lock(mutex_);
        for (schema::BatchRecord& batch : batches_) batch.lines = lines;
    }
    void set_state(schema::BatchState state) {
        const std::lock_guard lock(mutex_);
        for (schema::BatchRecord& batch : batches_) batch.state = state;
    }

private:
    void check() const {
        if (is_away) throw consumer::Unavailable("no broker");
    }
    template <typename Record>
    std::optional<Record> find(const std::vector<Record>& records, const std::string& tenant, const std::string& id) {
        check();
        const std::lock_guard lock(mutex_);
        const auto place = std::ranges::find(records, id, &Record::id);
        return place == records.end() || place->tenant != tenant ? std::nullopt : std::optional(*place);
    }
    template <typename Record, typename Keep>
    std::optional<schema::Page<Record>> list(const std::vector<Record>& records, const schema::ListQuery& query, const Keep& keep) {
        check();
        const std::lock_guard lock(mutex_);
        std::vector<Record> sorted = records;
        if (query.newest_first) std::ranges::reverse(sorted);
        std::erase_if(sorted, [&](const Record& each) { return each.tenant != query.tenant || !keep(each); });
        if (query.after) {
            const auto place = std::ranges::find(sorted, *query.after, &Record::id);
            if (place == sorted.end()) return std::nullopt;
            sorted.erase(sorted.begin(), std::next(place));
        }
        schema::Page<Record> page{.records = std::move(sorted)};
        page.has_more = page.records.size() > query.limit;
        if (page.has_more) page.records.resize(query.limit);
        return page;
    }
    template <typename Record>
    bool add(std::vector<Record>& records, const Record& record) {
        check();
        if (is_full) return false;
        const std::lock_guard lock(mutex_);
        records.push_back(record);
        return true;
    }

    mutable std::mutex mutex_;
    // Guarded by mutex_; in the order of their creation.
    std::vector<schema::FileRecord> files_;
    std::vector<schema::BatchRecord> batches_;
    std::vector<std::string> cancelled_;
};

}  // namespace lorry::tests
