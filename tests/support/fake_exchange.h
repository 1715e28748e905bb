// Fakes of consumer/seams.h for tests of the pipeline: a source with a list of records, a sink that keeps its completions, and directories
// set by hand.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "consumer/seams.h"

namespace lorry::tests {

using consumer::Clock;

// Delivers its records in order from partition 0 of topic "jobs". A revocation can be scheduled after a number of deliveries.
class FakeSource final : public consumer::JobSource {
public:
    void add(std::string value, std::vector<schema::Header> headers = {}) {
        schema::JobRecord record{.source = {.topic = "jobs", .partition = 0, .offset = next_offset_++},
                                 .key = "key",
                                 .value = std::move(value),
                                 .headers = std::move(headers),
                                 .timestamp = schema::Timestamp(std::chrono::milliseconds(1'000'000))};
        records_.push_back(std::move(record));
    }
    // A call: from partition 0 of topic "calls".
    void add_call(std::string value) {
        add(std::move(value));
        records_.back().source.topic = "calls";
        calls_.push_back(std::move(records_.back()));
        records_.pop_back();
    }
    bool is_call(const schema::Source& source) const override { return source.topic == "calls"; }
    void allow_calls(std::size_t max) override { calls_max_ = max; }
    void add_null() {
        add("");
        records_.back().value.reset();
    }
    // Called within poll() once this many records have been delivered.
    void after(std::int64_t deliveries, std::function<void(consumer::RevocationHandler&)> act) {
        actions_.emplace(deliveries, std::move(act));
    }
    // Never exhausted: only request_stop ends the pipeline.
    void stay_open() { stays_open_ = true; }
    // Decides whether the job at an offset may run; also called for jobs that never waited.
    std::function<bool(std::int64_t offset)> lets_go_on = nullptr;
    bool may_go_on(const schema::Source& source, consumer::Epoch) override { return !lets_go_on || lets_go_on(source.offset); }

    HeldBack held = HeldBack::none;
    HeldBack held_back() const override { return held; }
    std::atomic<bool> has_lost = false;
    bool has_lost_partitions() const override { return has_lost; }
    std::atomic<bool> has_given_up = false;
    void give_up() override { has_given_up = true; }

    std::vector<consumer::Delivery> poll(std::chrono::milliseconds, std::size_t max, consumer::RevocationHandler& handler) override {
        for (auto action = actions_.begin(); action != actions_.end() && action->first <= delivered_; action = actions_.erase(action)) {
            action->second(handler);
        }
        std::vector<consumer::Delivery> deliveries;
        const auto take = [&](std::deque<schema::JobRecord>& records, std::size_t most) {
            for (; most > 0 && !records.empty(); --most, ++delivered_) {
                deliveries.push_back({.record = std::move(records.front()), .epoch = 1});
                records.pop_front();
            }
        };
        take(calls_, calls_max_);
        take(records_, max);
        if (deliveries.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return deliveries;
    }
    // Called for each job that waits, with its offset.
    std::function<void(std::int64_t offset)> sees_wait = nullptr;
    void waits(const schema::Source& source, consumer::Epoch) override {
        if (sees_wait) sees_wait(source.offset);
    }
    bool exhausted() const override { return !stays_open_ && records_.empty() && calls_.empty() && actions_.empty(); }
    std::optional<std::int64_t> backlog() override { return static_cast<std::int64_t>(records_.size()); }
    void close(consumer::RevocationHandler& handler, Clock::time_point deadline) override {
        handler.drain({{.topic = "jobs", .partition = 0, .epoch = 1}, {.topic = "calls", .partition = 0, .epoch = 1}}, deadline);
    }

private:
    std::deque<schema::JobRecord> records_;
    std::deque<schema::JobRecord> calls_;
    std::size_t calls_max_ = 0;
    std::multimap<std::int64_t, std::function<void(consumer::RevocationHandler&)>> actions_;
    std::int64_t next_offset_ = 0;
    std::int64_t delivered_ = 0;
    bool stays_open_ = false;
};

// Keeps all completions. They count as published once commit() has returned.
class FakeSink final : public consumer::CompletionSink {
public:
    void publish(consumer::Outcome outcome) override { pending.push_back(std::move(outcome)); }
    void publish(const schema::Chunk& chunk) override { chunks.push_back(chunk); }
    void publish(const schema::Status& status) override { statuses.push_back(status); }
    // Called before each commit, on the publisher's thread.
    std::function<void()> before_commit = nullptr;
    std::size_t commit() override {
        return commit([](const consumer::Outcome&) { return true; });
    }
    std::size_t commit_calls() override {
        return commit([](const consumer::Outcome& outcome) { return outcome.source.topic == "calls"; });
    }
    template <typename Choose>
    std::size_t commit(const Choose& choose) {
        if (fails) throw std::runtime_error("the broker is gone");
        if (before_commit) before_commit();
        ++commits;
        const auto chosen = std::ranges::stable_partition(pending, std::not_fn(choose));
        const std::size_t count = chosen.size();
        for (auto& outcome : chosen) {
            const std::int64_t offset = outcome.source.offset;
            ++times_committed[offset];
            committed.insert_or_assign(offset, std::move(outcome));
        }
        pending.erase(chosen.begin(), chosen.end());
        return count;
    }

    // The completion of the job at this offset.
    const schema::Completion& completion(std::int64_t offset) const { return std::get<schema::Completion>(committed.at(offset).record); }
    const schema::DeadLetter& dead_letter(std::int64_t offset) const { return std::get<schema::DeadLetter>(committed.at(offset).record); }

    std::vector<consumer::Outcome> pending;
    std::map<std::int64_t, consumer::Outcome> committed;
    std::map<std::int64_t, int> times_committed;
    std::vector<schema::Chunk> chunks;
    std::vector<schema::Status> statuses;
    std::atomic<int> commits = 0;
    std::atomic<bool> fails = false;
};

// "base" is the base model. Other names are unknown, or become known after `known_after` calls.
class FakeDirectory final : public consumer::AdapterDirectory {
public:
    consumer::ModelName resolve(std::string_view model, Clock::time_point) const override {
        using Kind = consumer::ModelName::Kind;
        if (model == "base") return {.kind = Kind::base};
        if (model == "late") return {.kind = ++asked_ < 5 ? Kind::not_yet : Kind::base};
        if (model == "broken") return {.kind = Kind::adapter, .hash = "0000", .folder = "/nonexistent/adapter"};
        return {.kind = Kind::unknown};
    }
    std::vector<std::string> names() const override { return {"base"}; }

private:
    mutable std::atomic<int> asked_ = 0;
};

// Looks up all names but the base's for ever.
struct NeverSure final : consumer::AdapterDirectory {
    consumer::ModelName resolve(std::string_view model, Clock::time_point) const override {
        using Kind = consumer::ModelName::Kind;
        ++asked;
        return {.kind = model == "base" ? Kind::base : Kind::not_yet};
    }
    std::vector<std::string> names() const override { return {}; }
    mutable int asked = 0;  // the intake thread's
};

class FakeCancels final : public consumer::CancelDirectory {
public:
    void cancel(const std::string& id) {
        const std::lock_guard lock(mutex_);
        ids_.insert(id);
        ++version_;
    }
    bool is_cancelled(const schema::Job& job) const override {
        const std::lock_guard lock(mutex_);
        return ids_.contains(job.id) || ids_.contains(job.batch_id);
    }
    std::uint64_t version() const override { return version_; }

private:
    mutable std::mutex mutex_;
    std::set<std::string> ids_;  // guarded by mutex_
    std::atomic<std::uint64_t> version_ = 0;
};

}  // namespace lorry::tests
