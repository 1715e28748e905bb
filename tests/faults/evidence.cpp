// Reads topics in three ways: once to their end, as the ledger does, and continuously; see evidence.h.
#include "tests/faults/evidence.h"

#include <algorithm>
#include <condition_variable>
#include <utility>

#include "consumer/kafka/follow/ledger.h"
#include "consumer/kafka/reader.h"
#include "schema/store/store.h"
#include "tests/faults/kafka_probe.h"

namespace lorry::faults {
namespace {

using consumer::RecordReader;
using schema::JobRecord;
using std::chrono::milliseconds;

constexpr milliseconds turn{100};
constexpr std::size_t records_per_poll = 5'000;

std::vector<JobRecord> read_whole(const consumer::KafkaConfig& config, const std::string& topic, milliseconds patience) {
    RecordReader reader(config, {.topics = {topic}});
    std::vector<JobRecord> records;
    const auto deadline = SteadyClock::now() + patience;
    consumer::CatchUp catch_up(reader);
    while (SteadyClock::now() < deadline) {
        auto more = reader.poll(turn, records_per_poll);
        std::ranges::move(more, std::back_inserter(records));
        if (catch_up.is_done()) break;
    }
    std::ranges::sort(records, {}, &JobRecord::source);
    return records;
}

}  // namespace

Evidence read_evidence(const consumer::KafkaConfig& config, const schema::Topics& topics, const std::string& group, const FaultRules& rules,
                       milliseconds patience) {
    Evidence evidence;
    evidence.topics = topics;
    evidence.rules = rules;
    // A transaction that just ended becomes readable a moment later.
    const auto deadline = SteadyClock::now() + patience;
    for (;;) {
        const auto ends = partition_ends(config, {topics.results(), topics.dlq(), topics.status(), topics.chunks()});
        if (ends) evidence.ends = *ends;
        const bool closed = ends && std::ranges::all_of(*ends, [](const PartitionEnd& end) { return end.committed == end.all; });
        if (closed || SteadyClock::now() > deadline) break;
        std::this_thread::sleep_for(turn);
    }
    evidence.jobs = read_whole(config, topics.jobs(), patience);
    evidence.results = read_whole(config, topics.results(), patience);
    evidence.dead_letters = read_whole(config, topics.dlq(), patience);
    evidence.statuses = read_whole(config, topics.status(), patience);
    evidence.chunks = read_whole(config, topics.chunks(), patience);
    const auto read_offsets = [&](OffsetView view) {
        auto commits = committed_offsets(config, group, topics.jobs(), view);
        while (!commits && SteadyClock::now() < deadline) commits = committed_offsets(config, group, topics.jobs(), view);
        return commits;
    };
    auto commits = read_offsets(OffsetView::settled);
    evidence.offsets_settled = commits.has_value();
    if (!commits) commits = read_offsets(OffsetView::now);
    if (!commits) throw consumer::KafkaError("the group's committed offsets cannot be read");
    evidence.commits = std::move(*commits);
    return evidence;
}

std::vector<schema::Status> read_ledger(const consumer::KafkaConfig& config, const schema::Topics& topics,
                                        const std::filesystem::path& file) {
    constexpr std::chrono::seconds patience{60};
    {
        const auto ledger = consumer::Ledger::start(config, {.file = file, .topics = topics});
        if (!ledger) throw consumer::KafkaError("the ledger " + file.string() + " is still open in a worker");
        // The ledger does not signal that it has caught up. It has when no record is left and none comes.
        const auto deadline = SteadyClock::now() + patience;
        auto quiet_since = SteadyClock::now();
        std::uint64_t applied = ledger->stats().applied;
        while (SteadyClock::now() < std::min(deadline, quiet_since + std::chrono::seconds(2))) {
            std::this_thread::sleep_for(turn);
            const auto stats = ledger->stats();
            if (stats.applied != applied || stats.behind > 0 || stats.failing) quiet_since = SteadyClock::now();
            applied = stats.applied;
        }
    }
    const auto store = schema::Store::open(file, schema::Store::Mode::reader);
    std::vector<schema::Status> rows = store.jobs({.limit = 100'000'000});
    std::erase_if(rows, [](const schema::Status& row) { return !schema::is_terminal(row.state); });
    return rows;
}

Tail::Tail(const consumer::KafkaConfig& config, const schema::Topics& topics, const std::string& group)
    : config_(config),
      topics_(topics),
      group_(group),
      reader_([this](const std::stop_token& stop) { run(stop); }),
      sampler_([this](const std::stop_token& stop) { look_at_commits(stop); }) {}

void Tail::run(const std::stop_token& stop) {
    try {
        RecordReader reader(config_, {.topics = {topics_.results(), topics_.dlq(), topics_.status()}});
        while (!stop.stop_requested()) {
            const auto records = reader.poll(turn, records_per_poll);
            const std::scoped_lock lock(mutex_);
            for (const JobRecord& record : records) take(record);
            const auto at = reader.positions();
            if (sample_ && std::ranges::all_of(sample_->ends, [&](const PartitionEnd& end) {
                    return std::ranges::any_of(at, [&](const consumer::TopicOffset& one) {
                        return one.topic == end.topic && one.partition == end.partition && one.next >= end.all;
                    });
                })) {
                std::ranges::move(check_commits(sample_->commits, finished_), std::back_inserter(violations_));
                commits_seen_ += sample_->commits.size();
                sample_.reset();
            }
            at_end_ = records.empty() && reader.at_end();
        }
    } catch (const std::exception& error) {
        const std::scoped_lock lock(mutex_);
        failure_ = error.what();
    }
}

void Tail::take(const JobRecord& record) {
    const auto now = SteadyClock::now();
    if (record.source.topic == topics_.status()) {
        const auto status = schema::parse_status(record.value.value_or(""));
        if (status && schema::is_terminal(status->state)) ends_of_worker_[status->run.worker].push_back(now);
        return;
    }
    records_.push_back(record);
    const auto source = source_of(record);
    if (!source || !sources_.insert(*source).second) return;
    mark_finished(finished_, *source);
    watch_.end(now);
}

// Reads the commits first and the ends after them, so that all records those commits mention lie before the ends.
void Tail::look_at_commits(const std::stop_token& stop) {
    constexpr milliseconds interval{500};
    std::mutex mutex;
    std::condition_variable_any wake;
    while (!stop.stop_requested()) {
        std::unique_lock lock(mutex);
        wake.wait_for(lock, stop, interval, [] { return false; });
        {
            const std::scoped_lock busy(mutex_);
            if (sample_) continue;
        }
        try {
            auto commits = committed_offsets(config_, group_, topics_.jobs(), OffsetView::now);
            if (!commits || commits->empty()) continue;
            auto ends = partition_ends(config_, {topics_.results(), topics_.dlq()});
            if (!ends) continue;
            const std::scoped_lock busy(mutex_);
            sample_ = {std::move(*commits), std::move(*ends)};
        } catch (const consumer::KafkaError&) {
            continue;  // the brokers are down, which is part of the test
        }
    }
}

std::size_t Tail::ended() const {
    const std::scoped_lock lock(mutex_);
    if (!failure_.empty()) throw consumer::KafkaError("the reader that follows the results has ended: " + failure_);
    return sources_.size();
}

std::size_t Tail::results_with(std::initializer_list<std::string_view> words) const {
    const std::scoped_lock lock(mutex_);
    return static_cast<std::size_t>(std::ranges::count_if(records_, [&](const JobRecord& record) {
        return record.source.topic == topics_.results() && record.value &&
               std::ranges::all_of(words, [&](std::string_view word) { return record.value->find(word) != std::string::npos; });
    }));
}

std::optional<SteadyClock::time_point> Tail::first_end_of(const std::string& worker, SteadyClock::time_point since) const {
    const std::scoped_lock lock(mutex_);
    const auto found = ends_of_worker_.find(worker);
    if (found == ends_of_worker_.end()) return std::nullopt;
    const auto first = std::ranges::lower_bound(found->second, since);
    return first == found->second.end() ? std::nullopt : std::optional(*first);
}

void Tail::expect(std::size_t jobs) {
    const std::scoped_lock lock(mutex_);
    watch_.expect(jobs, SteadyClock::now());
}

void Tail::begin_watch() {
    const std::scoped_lock lock(mutex_);
    watch_.begin(SteadyClock::now());
}

milliseconds Tail::pause() const {
    const std::scoped_lock lock(mutex_);
    return std::chrono::duration_cast<milliseconds>(watch_.pause(SteadyClock::now()));
}

std::optional<milliseconds> Tail::stop_watch() {
    const std::scoped_lock lock(mutex_);
    const auto longest = watch_.stop(SteadyClock::now());
    return longest ? std::optional(std::chrono::duration_cast<milliseconds>(*longest)) : std::nullopt;
}

std::vector<Violation> Tail::violations() const {
    const std::scoped_lock lock(mutex_);
    return violations_;
}

std::size_t Tail::commits_seen() const {
    const std::scoped_lock lock(mutex_);
    return commits_seen_;
}

std::vector<JobRecord> Tail::finish(milliseconds patience) {
    sampler_.request_stop();
    sampler_.join();
    RecordReader ends(config_, {.topics = {topics_.results(), topics_.dlq()}});
    std::size_t wanted = 0;
    const auto deadline = SteadyClock::now() + patience;
    // As many records as a reader that starts now would find. Whether the contents are equal is for the checker to decide.
    while (SteadyClock::now() < deadline) {
        const auto more = ends.poll(turn, records_per_poll);
        wanted += more.size();
        const std::scoped_lock lock(mutex_);
        if (more.empty() && ends.at_end() && at_end_ && records_.size() >= wanted) break;
    }
    reader_.request_stop();
    reader_.join();
    return std::move(records_);
}

}  // namespace lorry::faults
