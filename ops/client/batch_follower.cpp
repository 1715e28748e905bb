// Counts a batch's records in three topics.
#include "ops/client/batch_follower.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "ops/client/job_search.h"
#include "ops/progress_bar.h"
#include "ops/units.h"
#include "schema/codec_error.h"

namespace lorry::ops {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds standing_interval{300};
// A result and its status are published together, but may be read this far apart.
constexpr std::chrono::seconds news_patience{3};
// A running submit sends something within this time.
constexpr std::chrono::seconds submit_patience{30};
constexpr std::size_t failures_max = 100;
constexpr std::size_t failures_shown = 5;
constexpr std::size_t error_bytes_max = 500;

consumer::RecordReader::Options reader_options(const schema::Topics& topics, const BatchFollower::Options& options) {
    consumer::RecordReader::Options reader{.topics = {topics.jobs()}, .start = start_of_batch(options.batch_id), .passes_unreadable = true};
    if (options.results) reader.topics.insert(reader.topics.end(), {topics.results(), topics.dlq()});
    if (options.since) reader.start = *options.since;
    return reader;
}

std::int64_t announced_by(const schema::JobRecord& record) {
    const std::string* text = schema::find_header(record.headers, batch_jobs_header);
    return text == nullptr ? 0 : std::max<std::int64_t>(0, parse_integer(*text).value_or(0));
}

}  // namespace

BatchFollower::BatchFollower(const consumer::KafkaConfig& config, const schema::Topics& topics, Options options)
    : options_(std::move(options)),
      config_(config),
      topics_(topics),
      reader_(config, reader_options(topics, options_)),
      beginning_(reader_),
      all_(reader_),
      rest_(reader_, consumer::RecordReader::EndKind::written),
      last_news_(Clock::now()),
      last_job_(last_news_) {}

void BatchFollower::know(const schema::ResultSummary& summary) {
    if (summary.id.empty() || !known_.add(summary.id)) return;
    if (!summary.ok) known_failures_.emplace(summary.id, summary.error);
}

std::vector<BatchResult> BatchFollower::poll() {
    std::vector<BatchResult> results;
    for (schema::JobRecord& record : reader_.poll()) {
        const std::string* batch = schema::find_header(record.headers, schema::batch_id_header);
        if (batch == nullptr || *batch != options_.batch_id) continue;
        counts_.announced = std::max(counts_.announced, announced_by(record));
        last_news_ = Clock::now();
        if (record.source.topic == topics_.jobs()) {
            take_job(record);
        } else if (record.source.topic == topics_.dlq()) {
            take_dead_letter(record);
        } else {
            take_result(std::move(record), results);
        }
    }
    return results;
}

void BatchFollower::take_job(const schema::JobRecord& record) {
    ++counts_.jobs;
    last_job_ = last_news_;
    if (on_job_) on_job_(record.value.value_or(std::string()));
    if (known_.size() == 0 || !record.value) return;
    const auto custom_id = schema::scan_string_member(*record.value, "custom_id");
    if (!custom_id) return;
    const std::string id = schema::result_id(record.source, *custom_id);
    if (!known_.contains(id) || !seen_.add(id)) return;
    const auto failure = known_failures_.find(id);
    count({.id = id, .ok = failure == known_failures_.end(), .error = failure == known_failures_.end() ? "" : failure->second});
}

void BatchFollower::take_result(schema::JobRecord record, std::vector<BatchResult>& results) {
    if (!record.value) return;
    auto summary = schema::parse_result(*record.value);
    if (!summary) {
        summary = schema::ResultSummary{.error = fmt::format("unreadable_result: {} [{}] offset {}: {}", record.source.topic,
                                                             record.source.partition, record.source.offset, summary.error())};
    }
    missing_.erase(summary->id);
    if (!seen_.add(summary->id.empty() ? *record.value : summary->id)) return;
    count(*summary);
    results.push_back({.line = *std::move(record.value), .summary = *std::move(summary)});
}

void BatchFollower::take_dead_letter(const schema::JobRecord& record) {
    const auto header = [&](std::string_view name) {
        const std::string* value = schema::find_header(record.headers, name);
        return value == nullptr ? std::string("?") : *value;
    };
    const std::string source = fmt::format("{} [{}] offset {}", header("__connect.errors.topic"), header("__connect.errors.partition"),
                                           header("__connect.errors.offset"));
    if (!seen_.add(source)) return;
    count_failure(fmt::format("dead_letter: {} is not a job: {}", source, header("__connect.errors.exception.message")));
}

void BatchFollower::count(const schema::ResultSummary& summary) {
    if (summary.ok) {
        ++counts_.ok;
    } else {
        count_failure(summary.error);
    }
}

void BatchFollower::count_failure(const std::string& error) {
    ++counts_.failed;
    const std::string kind = schema::shortened(error, error_bytes_max);
    if (errors_.size() < failures_max || errors_.contains(kind)) ++errors_[kind];
}

BatchFollower::Standing BatchFollower::standing() {
    if (options_.results && counts_.finished() < counts_.total() && is_rest_lost()) return Standing::lost;
    // It does not matter whether jobs or results are read first: nothing is missing if all jobs have ended when both are read up to the
    // same moment.
    if (options_.results && counts_.finished() < counts_.jobs) {
        all_.begin_again();
        return Standing::open;
    }
    if (!all_.is_done()) return Standing::checked;
    all_.begin_again();
    if (counts_.jobs == 0 && counts_.finished() == 0) return Standing::no_such;
    if (counts_.jobs >= counts_.announced || counts_.finished() >= counts_.announced) return Standing::complete;
    return Clock::now() - last_job_ > submit_patience ? Standing::cut_short : Standing::open;
}

bool BatchFollower::is_rest_lost() {
    if (Clock::now() - last_news_ < news_patience || reader_.is_away() || !beginning_.is_done()) return false;
    if (!can_read_statuses()) return false;
    const auto until = Clock::now() + standing_interval;
    do {
        for (const schema::JobRecord& record : statuses_->poll()) take_status(record);
    } while (!all_statuses_->is_done() && Clock::now() < until);
    if (!all_statuses_->is_done() || Clock::now() - last_news_ < news_patience) return false;
    all_statuses_->begin_again();
    return counts_.finished() + std::ssize(missing_) >= counts_.total() && rest_.is_done();
}

// Brokers that hang do not end the wait for results: the next call asks them again.
bool BatchFollower::can_read_statuses() {
    if (statuses_) return true;
    auto options = reader_options(topics_, options_);
    options.topics = {topics_.status()};
    consumer::KafkaConfig config = config_;
    config.deadline_start = std::min<milliseconds>(config.deadline_start, news_patience);
    try {
        statuses_.emplace(config, std::move(options));
    } catch (const consumer::KafkaAway&) {
        return false;
    }
    all_statuses_.emplace(*statuses_);
    return true;
}

void BatchFollower::take_status(const schema::JobRecord& record) {
    const std::string prefix = options_.batch_id + "/";
    if (!record.key || !record.value || !record.key->starts_with(prefix)) return;
    const auto status = schema::parse_status(*record.value);
    if (!status || !schema::is_terminal(status->state) || status->run.batch_id != options_.batch_id) return;
    const std::string id = schema::result_id(status->run.source, record.key->substr(prefix.size()));
    if (seen_.contains(id) || !missing_.insert(id).second) return;
    last_news_ = Clock::now();
    rest_.begin_again();  // the result may be behind what was read so far
}

std::vector<std::string> BatchFollower::shortened_topics() {
    std::vector<std::string> topics;
    for (const auto& partition : reader_.bounds()) {
        if (partition.first > 0 && (topics.empty() || topics.back() != partition.topic)) topics.push_back(partition.topic);
    }
    return topics;
}

std::int64_t BatchFollower::jobs_gone_max() {
    std::int64_t count = 0;
    for (const auto& partition : reader_.bounds()) {
        // Retention deletes the oldest records first: while a record from before the batch exists, none of the batch is gone.
        if (partition.topic == topics_.jobs() && partition.first >= partition.begun) count += partition.first;
    }
    return count;
}

FollowEnd follow_to_end(BatchFollower& batch, ProgressBar& progress, const FollowOptions& options) {
    auto next_standing = Clock::now();
    while (!options.stop.load()) {
        for (const BatchResult& result : batch.poll()) {
            if (options.on_result) options.on_result(result);
        }
        if (options.after_poll) options.after_poll();
        const BatchCounts& counts = batch.counts();
        const bool caught_up = batch.has_caught_up();
        ProgressState state{.done = counts.finished(), .failed = counts.failed, .is_catching_up = !caught_up};
        if (batch.is_away()) state.trouble = "Kafka does not answer";
        if (counts.total() > 0) state.total = counts.total();
        progress.show(state);
        const auto time = Clock::now();
        if (time < next_standing) continue;
        next_standing = time + standing_interval;
        const BatchFollower::Standing standing = batch.standing();
        switch (standing) {
            case BatchFollower::Standing::open:
            case BatchFollower::Standing::checked: break;
            case BatchFollower::Standing::complete: return FollowEnd::complete;
            case BatchFollower::Standing::cut_short: return FollowEnd::cut_short;
            case BatchFollower::Standing::lost: return FollowEnd::lost;
            case BatchFollower::Standing::no_such: return FollowEnd::no_such;
        }
        if (options.limit.ends(caught_up && standing != BatchFollower::Standing::checked)) return FollowEnd::timed_out;
    }
    return FollowEnd::stopped;
}

std::string show_counts(const BatchFollower& batch) {
    const BatchCounts& counts = batch.counts();
    if (counts.total() == 0) return "none of its jobs were seen";
    std::string text = fmt::format("{} of {} jobs ended", show_count(counts.finished()), show_count(counts.total()));
    if (counts.failed > 0) {
        text += fmt::format(", {} of them failed", show_count(counts.failed));
    } else if (counts.finished() == counts.total()) {
        text += ", all well";
    }
    std::vector<std::pair<std::int64_t, std::string>> errors;
    for (const auto& [error, count] : batch.errors()) errors.emplace_back(count, error);
    std::ranges::sort(errors, [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
    for (std::size_t i = 0; i < std::min(errors.size(), failures_shown); ++i) {
        text += fmt::format("\n  {} × {}", show_count(errors[i].first), errors[i].second);
    }
    if (errors.size() > failures_shown) text += fmt::format("\n  and {} other kinds of errors", errors.size() - failures_shown);
    return text;
}

}  // namespace lorry::ops
