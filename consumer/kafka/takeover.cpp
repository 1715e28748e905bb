// The takeover rules, and the thread that asks for what they need.
#include "consumer/kafka/takeover.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "consumer/kafka/committed_offsets.h"
#include "consumer/kafka/times.h"
#include "consumer/log.h"

namespace lorry::consumer {

namespace {

// Number of unfinished offsets below `first`; some of them may never have been jobs.
std::int64_t unfinished_below(const CommitState& state, std::int64_t first) {
    std::int64_t count = first > state.offset ? 1 : 0;
    for (const std::int64_t hole : state.holes) count += hole < first ? 1 : 0;
    return count + std::max<std::int64_t>(0, first - 1 - state.highest_finished);
}

}  // namespace

TakenOver take_over(const std::string& topic, std::int32_t partition, std::optional<std::int64_t> committed, std::string_view metadata,
                    const KafkaConnection::Watermarks& log, std::string_view topic_id) {
    TakenOver taken{.topic = topic, .partition = partition, .state = {}, .start = 0, .first = log.first, .end = log.end, .lost = 0};
    if (!committed) {
        taken.basis = Basis::results;
        taken.state = nothing_finished_above(log.first);
    } else if (*committed > log.end) {
        log_warning(
            "{} [{}]: the committed offset {} is beyond the log's end {}: the topic was truncated or recreated. Starting at its "
            "beginning, {}; jobs that were finished before are not known",
            topic, partition, *committed, log.end, log.first);
        taken.basis = Basis::nothing;
        taken.state = nothing_finished_above(log.first);
    } else if (auto state = committed_state(topic, partition, *committed, metadata); state && is_of_other_topic(*state, topic_id)) {
        log_warning("{} [{}]: the committed offset {} belongs to an earlier topic of that name. Starting at the beginning, {}", topic,
                    partition, *committed, log.first);
        taken.basis = Basis::results;
        taken.state = nothing_finished_above(log.first);
    } else if (state) {
        taken.state = *std::move(state);
    } else {
        log_warning("{} [{}]: {}; jobs finished above the committed offset {} are looked up in the results", topic, partition,
                    state.error().text, *committed);
        taken.basis = Basis::results;
        taken.state = nothing_finished_above(*committed);
    }
    taken.recorded = taken.basis == Basis::commit;
    if (!topic_id.empty()) taken.state.topic = mark_of_topic(topic_id);
    taken.start = std::max(taken.state.offset, log.first);
    taken.lost = unfinished_below(taken.state, log.first);
    return taken;
}

CommitState with_finished(const CommitState& state, std::int64_t first, const std::set<std::int64_t>& finished) {
    std::set<std::int64_t> unfinished(state.holes.begin(), state.holes.end());
    const bool is_finished_above = state.highest_finished > state.offset;
    if (is_finished_above) unfinished.insert(state.offset);
    unfinished.erase(unfinished.begin(), unfinished.lower_bound(first));
    std::int64_t next = std::max(is_finished_above ? state.highest_finished + 1 : state.offset, first);  // from here on, all are unfinished
    for (const std::int64_t offset : finished) {
        CHECK(offset >= first, "finished offsets are at or above the first one");
        while (next <= offset) unfinished.insert(next++);
        unfinished.erase(offset);
    }
    CommitState merged = nothing_finished_above(unfinished.empty() ? next : *unfinished.begin());
    merged.seen = state.seen;
    merged.topic = state.topic;
    if (!unfinished.empty()) {
        merged.highest_finished = next - 1;
        merged.holes.assign(std::next(unfinished.begin()), unfinished.end());
    }
    for (const StartCount& start : state.starts) {
        if (start.offset >= next || unfinished.contains(start.offset)) merged.starts.push_back(start);
    }
    return merged;
}

void add_ended(TakenOver& taken, const PastResults::Answer& past) {
    const std::int64_t before = unfinished_below(taken.state, taken.end) - unfinished_below(taken.state, taken.start);
    taken.state = with_finished(taken.state, taken.start, past.ended);
    taken.state.seen = past.seen;
    taken.start = taken.state.offset;
    const std::int64_t news = before - unfinished_below(taken.state, taken.end);
    if (news == 0) return;
    taken.recorded = false;
    log_at(taken.basis == Basis::commit ? LogLevel::warning : LogLevel::info,
           "{} [{}]: the results topic shows {} more ended jobs than the committed offset; continuing at offset {}", taken.topic,
           taken.partition, news, taken.start);
}

void TakeOver::start(TopicPartitions partitions) {
    CHECK(!thread_.joinable(), "one takeover at a time");
    thread_ = std::jthread([this, partitions = std::move(partitions)](const std::stop_token& stop) {
        try {
            auto answer = ask(partitions, stop);
            const std::scoped_lock lock(mutex_);
            answer_ = std::move(answer);
        } catch (...) {
            const std::scoped_lock lock(mutex_);
            failure_ = std::current_exception();
        }
    });
}

std::optional<std::vector<TakenOver>> TakeOver::result() {
    if (!thread_.joinable()) return std::nullopt;
    {
        const std::scoped_lock lock(mutex_);
        if (!answer_ && !failure_) return std::nullopt;
    }
    thread_.join();
    const std::scoped_lock lock(mutex_);
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    return std::exchange(answer_, std::nullopt);
}

void TakeOver::cancel() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    thread_.join();
    const std::scoped_lock lock(mutex_);
    failure_ = nullptr;
    answer_.reset();
}

std::vector<TakenOver> TakeOver::ask(const TopicPartitions& partitions, const std::stop_token& stop) {
    const char* what = "reading committed offsets";
    PartitionListHandle list = list_of(partitions);
    for (Retry retry(consumer_, what, consumer_.config().deadline_later, stop);;) {
        const auto error = committed_offsets_of_all(consumer_, list, request_timeout);
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR) break;
        if (is_configuration_error(error)) throw consumer_.refused(what, error, partitions.front().first);
        if (!retry.again(rd_kafka_err2str(error))) return {};
    }
    // Otherwise results would name the old topic, and the next owner would run their jobs again.
    if (!past_results_.check_inputs(consumer_.config().deadline_later, stop)) return {};
    const auto topic_ids = past_results_.end_topics().input_ids;
    std::vector<TakenOver> all;
    std::vector<PastResults::Question> questions;
    for (int i = 0; i < list->cnt; ++i) {
        const rd_kafka_topic_partition_t& found = list->elems[i];
        if (found.err != RD_KAFKA_RESP_ERR_NO_ERROR) continue;  // undecided: left out
        const auto log = consumer_.watermarks(found.topic, found.partition, consumer_.config().deadline_later, stop);
        if (!log) return {};
        const auto committed = found.offset >= 0 ? std::optional(found.offset) : std::nullopt;
        const TakenOver& taken =
            all.emplace_back(take_over(found.topic, found.partition, committed, metadata_of(found), *log, topic_ids.at(found.topic)));
        questions.push_back({.place = {taken.topic, taken.partition},
                             .first = taken.start,
                             .end = taken.basis == Basis::nothing ? taken.start : taken.end,
                             .seen = taken.basis == Basis::commit ? std::optional(taken.state.seen) : std::nullopt});
    }
    const auto answers = past_results_.ask(questions, stop);
    if (!answers) return {};
    for (TakenOver& taken : all) add_ended(taken, answers->at({taken.topic, taken.partition}));
    return all;
}

}  // namespace lorry::consumer
