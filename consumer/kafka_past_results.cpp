// Reading results for the sources they name.
#include "consumer/kafka_past_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <thread>

#include "consumer/backoff.h"
#include "consumer/kafka_end_offsets.h"
#include "consumer/kafka_reader.h"

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds poll_timeout{200};
constexpr milliseconds backoff_first{50};
constexpr milliseconds backoff_max{1'000};
constexpr std::size_t records_max = 1000;
// How far the clocks of producers, workers and brokers may be apart.
constexpr std::chrono::minutes clocks_apart{10};

// A kind of log that ends of jobs stand in, and its headers that name the job.
struct Kind {
    std::string topic;
    std::int32_t partitions;
    std::int64_t EndsSeen::*seen;
    std::string_view topic_header;
    std::string_view partition_header;
    std::string_view offset_header;

    TopicPartitions::value_type log_of(std::int32_t jobs_partition) const { return {topic, jobs_partition % partitions}; }
};

// The last of that name: a job's own headers stand before ours.
std::optional<std::string_view> header(const schema::JobRecord& record, std::string_view name) {
    for (auto found = record.headers.rbegin(); found != record.headers.rend(); ++found) {
        if (found->first == name) return found->second;
    }
    return std::nullopt;
}

std::optional<std::int64_t> number(std::optional<std::string_view> text) {
    std::int64_t value = 0;
    if (!text) return std::nullopt;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
    return value;
}

// The first record from that offset on; nullopt: there is none, or told to stop.
std::optional<schema::JobRecord> first_record(const KafkaConfig& config, const TopicOffset& from, const std::stop_token& stop) {
    RecordReader reader(config, {.positions = {from}, .positions_only = true});
    while (!stop.stop_requested()) {
        auto records = reader.poll(poll_timeout, 1);
        if (!records.empty()) return std::move(records.front());
        if (reader.at_end()) return std::nullopt;
    }
    return std::nullopt;
}

}  // namespace

const PastResults::Counts& PastResults::counts() {
    if (!counts_) {
        counts_ = Counts{.results = connection_.required_partition_count(topics_.results()),
                         .dead_letters = connection_.required_partition_count(topics_.dlq()),
                         .jobs_topic_id = connection_.topic_id(topics_.jobs())};
    }
    return *counts_;
}

// As everybody sees them, committed or not: what is above was written later.
std::optional<EndOffsets> PastResults::ends_of(const TopicPartitions& logs, const std::stop_token& stop) const {
    const auto deadline = std::chrono::steady_clock::now() + connection_.config().deadline_later;
    for (Backoff backoff(backoff_first, backoff_max); !stop.stop_requested();) {
        if (auto ends = end_offsets(connection_, logs, RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED, stop)) return ends;
        if (std::chrono::steady_clock::now() > deadline) {
            throw connection_.away("asking where the results end", connection_.config().deadline_later);
        }
        std::this_thread::sleep_for(backoff.next());
    }
    return std::nullopt;
}

// Where in that log the result of the oldest open job can be: not before its job was written.
std::int64_t PastResults::oldest_start(const TopicPartitions::value_type& log, const Question& question,
                                       const std::stop_token& stop) const {
    const auto oldest = first_record(connection_.config(), {topics_.jobs(), question.partition, question.first}, stop);
    if (!oldest || !oldest->timestamp) return 0;
    return first_offset_since(connection_, log, *oldest->timestamp - clocks_apart).value_or(0);
}

std::optional<std::map<std::int32_t, PastResults::Answer>> PastResults::ask(const std::vector<Question>& questions,
                                                                            const std::stop_token& stop) {
    const std::scoped_lock lock(mutex_);
    const std::array kinds = {Kind{topics_.results(), counts().results, &EndsSeen::results, schema::source_topic_header,
                                   schema::source_partition_header, schema::source_offset_header},
                              Kind{topics_.dlq(), counts().dead_letters, &EndsSeen::dead_letters, schema::dead_letter_topic_header,
                                   schema::dead_letter_partition_header, schema::dead_letter_offset_header}};
    std::set<TopicPartitions::value_type> logs;
    for (const Question& question : questions) {
        for (const Kind& kind : kinds) logs.insert(kind.log_of(question.partition));
    }
    const auto ends = ends_of({logs.begin(), logs.end()}, stop);
    if (!ends) return std::nullopt;

    struct Asked {
        std::int64_t first = 0, end = 0;
        EndsSeen from;
    };
    std::map<std::int32_t, Answer> answers;
    std::map<std::int32_t, Asked> asked;
    std::map<TopicPartitions::value_type, std::int64_t> starts;
    for (const Question& question : questions) {
        Answer& answer = answers[question.partition];
        Asked& one = asked[question.partition] = {.first = question.first, .end = question.end, .from = question.seen.value_or(EndsSeen{})};
        for (const Kind& kind : kinds) {
            const auto log = kind.log_of(question.partition);
            const std::int64_t end = answer.seen.*kind.seen = ends->at(log);
            if (question.first >= question.end || end == 0) continue;
            std::int64_t& from = one.from.*kind.seen;
            if (!question.seen) from = oldest_start(log, question, stop);
            if (question.seen && from > end) from = 0;  // the topic was made anew
            if (from >= end) continue;
            const auto [start, is_new] = starts.try_emplace(log, from);
            if (!is_new) start->second = std::min(start->second, from);
        }
    }
    if (starts.empty()) return answers;

    RecordReader::Options options{.positions_only = true};
    for (const auto& [log, start] : starts) options.positions.push_back({log.first, log.second, start});
    RecordReader reader(connection_.config(), std::move(options));
    const auto is_read = [&](const TopicOffset& position) { return position.next >= ends->at({position.topic, position.partition}); };
    while (!std::ranges::all_of(reader.positions(), is_read)) {
        if (stop.stop_requested()) return std::nullopt;
        for (const schema::JobRecord& record : reader.poll(poll_timeout, records_max)) {
            const auto kind = std::ranges::find(kinds, record.source.topic, &Kind::topic);
            CHECK(kind != kinds.end(), "only these topics are read");
            const auto id = header(record, schema::source_topic_id_header);
            if (header(record, kind->topic_header) != topics_.jobs()) continue;
            if (id && !counts().jobs_topic_id.empty() && *id != counts().jobs_topic_id) continue;
            const auto partition = number(header(record, kind->partition_header));
            const auto offset = number(header(record, kind->offset_header));
            if (!partition || !offset) continue;
            const auto found = asked.find(static_cast<std::int32_t>(*partition));
            if (found == asked.end() || *offset < found->second.first || *offset >= found->second.end) continue;
            // Another partition's question may begin earlier in the same log.
            if (record.source.offset >= found->second.from.*kind->seen) answers[found->first].ended.insert(*offset);
        }
    }
    return answers;
}

}  // namespace lorry::consumer
