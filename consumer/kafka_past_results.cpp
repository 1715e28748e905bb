// Reading results for the sources they name.
#include "consumer/kafka_past_results.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <functional>
#include <thread>

#include "consumer/backoff.h"
#include "consumer/kafka_reader.h"

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;
using Log = TopicPartitions::value_type;

constexpr milliseconds poll_timeout{200};
constexpr milliseconds backoff_first{50};
constexpr milliseconds backoff_max{1'000};
constexpr std::size_t records_max = 1000;
// How far the clocks of producers, workers and brokers may be apart: brokers refuse records that come from over an hour ahead.
constexpr std::chrono::minutes clocks_apart{70};
constexpr std::chrono::seconds telling_interval{30};

// A kind of log that ends of jobs stand in, and its headers that name the job.
struct Kind {
    std::string topic;
    std::int32_t partitions;
    std::int64_t EndsSeen::*seen;
    std::string_view topic_header;
    std::string_view partition_header;
    std::string_view offset_header;

    Log log_of(std::int32_t jobs_partition) const { return {topic, jobs_partition % partitions}; }
};

// What one partition's answer is made of: its jobs in [first, end), ended by records from these offsets on.
struct Sought {
    std::int64_t first = 0;
    std::int64_t end = 0;
    EndsSeen from;
};

std::optional<std::int64_t> number(const std::string* text) {
    std::int64_t value = 0;
    if (text == nullptr) return std::nullopt;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
    return value;
}

// The job that ended with this record; nullopt: it names none of that topic.
std::optional<schema::Source> ended_job(const schema::JobRecord& record, const Kind& kind, const std::string& topic,
                                        const std::string& topic_id) {
    const auto header = [&](std::string_view name) { return schema::find_header(record.headers, name); };
    const std::string* named = header(kind.topic_header);
    const std::string* id = header(schema::source_topic_id_header);
    if (named == nullptr || *named != topic || (id != nullptr && !topic_id.empty() && *id != topic_id)) return std::nullopt;
    const auto partition = number(header(kind.partition_header));
    const auto offset = number(header(kind.offset_header));
    if (!partition || !offset) return std::nullopt;
    return schema::Source{topic, static_cast<std::int32_t>(*partition), *offset};
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

// Every committed record of these logs from `starts` up to `ends`. False: told to stop. Throws KafkaError after `patience`.
bool read(const KafkaConfig& config, const std::map<Log, std::int64_t>& starts, const EndOffsets& ends, const std::stop_token& stop,
          std::optional<milliseconds> patience, const std::function<void(const schema::JobRecord&)>& take) {
    RecordReader::Options options{.positions_only = true};
    for (const auto& [log, start] : starts) options.positions.push_back({log.first, log.second, start});
    RecordReader reader(config, std::move(options));
    const auto is_read = [&](const TopicOffset& position) { return position.next >= ends.at({position.topic, position.partition}); };
    const auto start_time = std::chrono::steady_clock::now();
    auto next_telling = start_time + telling_interval;
    for (;;) {
        const auto positions = reader.positions();
        const auto behind = std::ranges::find_if_not(positions, is_read);
        if (behind == positions.end()) return true;
        if (stop.stop_requested()) return false;
        const auto now = std::chrono::steady_clock::now();
        if (patience && now - start_time > *patience) {
            throw KafkaError(
                fmt::format("{} [{}]: a transaction is open at offset {}, and whether what lies behind it is committed cannot be "
                            "known: start the worker again",
                            behind->topic, behind->partition, behind->next));
        }
        if (now > next_telling) {
            next_telling = now + telling_interval;
            spdlog::info("{} [{}]: reading what has ended is at offset {} of {}", behind->topic, behind->partition, behind->next,
                         ends.at({behind->topic, behind->partition}));
        }
        for (const schema::JobRecord& record : reader.poll(poll_timeout, records_max)) take(record);
    }
}

}  // namespace

EndTopics PastResults::end_topics() {
    const std::scoped_lock lock(mutex_);
    if (!end_topics_) {
        end_topics_ = EndTopics{.results = connection_.required_partition_count(topics_.results()),
                                .dead_letters = connection_.required_partition_count(topics_.dlq()),
                                .jobs_id = connection_.topic_id(topics_.jobs())};
    }
    return *end_topics_;
}

std::optional<EndOffsets> PastResults::ends_of(const TopicPartitions& logs, rd_kafka_IsolationLevel_t level,
                                               const std::stop_token& stop) const {
    const auto deadline = std::chrono::steady_clock::now() + connection_.config().deadline_later;
    for (Backoff backoff(backoff_first, backoff_max); !stop.stop_requested();) {
        if (auto ends = end_offsets(connection_, logs, level, stop)) return ends;
        if (std::chrono::steady_clock::now() > deadline) {
            throw connection_.away("asking where the results end", connection_.config().deadline_later);
        }
        std::this_thread::sleep_for(backoff.next());
    }
    return std::nullopt;
}

// When the first of these jobs can have ended: not before it was written. nullopt: nobody knows.
std::optional<schema::Timestamp> PastResults::oldest_end(const Question& question, const std::stop_token& stop) const {
    const auto oldest = first_record(connection_.config(), {topics_.jobs(), question.partition, question.first}, stop);
    if (!oldest || !oldest->timestamp) return std::nullopt;
    return *oldest->timestamp - clocks_apart;
}

std::optional<std::map<std::int32_t, PastResults::Answer>> PastResults::ask(const std::vector<Question>& questions,
                                                                            const std::stop_token& stop,
                                                                            std::optional<milliseconds> patience) {
    const EndTopics topics = end_topics();
    const std::array kinds = {Kind{topics_.results(), topics.results, &EndsSeen::results, schema::source_topic_header,
                                   schema::source_partition_header, schema::source_offset_header},
                              Kind{topics_.dlq(), topics.dead_letters, &EndsSeen::dead_letters, schema::dead_letter_topic_header,
                                   schema::dead_letter_partition_header, schema::dead_letter_offset_header}};
    std::set<Log> logs;
    for (const Question& question : questions) {
        for (const Kind& kind : kinds) logs.insert(kind.log_of(question.partition));
    }
    const auto level = patience ? RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED : RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED;
    const auto ends = ends_of({logs.begin(), logs.end()}, level, stop);
    if (!ends) return std::nullopt;

    std::map<std::int32_t, Answer> answers;
    std::map<std::int32_t, Sought> sought;
    std::map<Log, std::int64_t> starts;
    for (const Question& question : questions) {
        // Never back: behind an open transaction more may be known than readers see, and a replay must not find what was before it.
        EndsSeen& seen = answers[question.partition].seen = question.seen.value_or(EndsSeen{});
        for (const Kind& kind : kinds) seen.*kind.seen = std::max(seen.*kind.seen, ends->at(kind.log_of(question.partition)));
        if (question.first >= question.end) continue;
        Sought& one = sought[question.partition] = {question.first, question.end, question.seen.value_or(EndsSeen{})};
        const auto oldest = question.seen ? std::nullopt : oldest_end(question, stop);
        for (const Kind& kind : kinds) {
            const Log log = kind.log_of(question.partition);
            std::int64_t& from = one.from.*kind.seen;
            if (oldest) from = first_offset_since(connection_, log, *oldest).value_or(0);
            if (from >= ends->at(log)) continue;
            const auto [start, is_new] = starts.try_emplace(log, from);
            if (!is_new) start->second = std::min(start->second, from);
        }
    }
    const auto take = [&](const schema::JobRecord& record) {
        const auto kind = std::ranges::find(kinds, record.source.topic, &Kind::topic);
        CHECK(kind != kinds.end(), "only these topics are read");
        const auto job = ended_job(record, *kind, topics_.jobs(), topics.jobs_id);
        const auto found = job ? sought.find(job->partition) : sought.end();
        if (found == sought.end() || job->offset < found->second.first || job->offset >= found->second.end) return;
        // Another partition's question may begin earlier in the same log.
        if (record.source.offset >= found->second.from.*kind->seen) answers[job->partition].ended.insert(job->offset);
    };
    if (!starts.empty() && !read(connection_.config(), starts, *ends, stop, patience, take)) return std::nullopt;
    return answers;
}

}  // namespace lorry::consumer
