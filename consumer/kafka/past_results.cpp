// Reads results and dead letters and matches them to jobs by the source they name.
#include "consumer/kafka/past_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "consumer/kafka/reader.h"
#include "consumer/log.h"

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;
using Question = PastResults::Question;

constexpr milliseconds read_turn{200};
// How far apart the clocks of producers, workers and brokers may be: brokers refuse records that are more than an hour ahead.
constexpr std::chrono::minutes clocks_apart{70};
constexpr std::chrono::seconds progress_interval{30};

// One of the two topics that hold the ends of jobs, and how its headers name the job.
struct Kind {
    std::string topic;
    std::int32_t partitions;
    std::int64_t EndsSeen::*seen;
    std::optional<schema::NamedSource> (*source)(std::span<const schema::Header> headers);

    TopicPartition place_of(std::int32_t jobs_partition) const { return {topic, jobs_partition % partitions}; }
};

// The first record at or after that offset; nullopt: there is none, it cannot be read, or a stop was requested.
std::optional<schema::JobRecord> first_record(const KafkaConfig& config, const TopicOffset& from, const std::stop_token& stop) {
    RecordReader reader(config, {.positions = {from}, .positions_only = true});
    while (!stop.stop_requested()) {
        auto records = reader.poll(read_turn, 1);
        if (!records.empty()) return std::move(records.front());
        if (reader.at_end() || reader.unreadable()) return std::nullopt;
    }
    return std::nullopt;
}

// One search: selects the records that can answer the questions, reads them and collects the answers.
class Search {
public:
    Search(const KafkaConnection& connection, const schema::Topics& topics, const EndTopics& ends)
        : connection_(connection),
          input_ids_(ends.input_ids),
          kinds_{Kind{topics.results(), ends.results, &EndsSeen::results, schema::source_of_result},
                 Kind{topics.dlq(), ends.dead_letters, &EndsSeen::dead_letters, schema::source_of_dead_letter}} {}

    TopicPartitions places_of(const std::vector<Question>& questions) const {
        std::set<TopicPartition> places;
        for (const auto& question : questions) {
            for (const Kind& kind : kinds_) places.insert(kind.place_of(question.place.second));
        }
        return {places.begin(), places.end()};
    }

    // `ends`: where reading stops; `written`: where the logs end, including open transactions.
    void add(const Question& question, const EndOffsets& ends, const EndOffsets& written, const std::stop_token& stop) {
        EndsSeen marks = question.seen.value_or(EndsSeen{});
        for (const Kind& kind : kinds_) leave_out_foreign(marks.*kind.seen, kind.place_of(question.place.second), written);
        // Never moves back: more may be known after an open transaction than readers see, and a replay must not find what was before it.
        EndsSeen& seen = answers_[question.place].seen = marks;
        for (const Kind& kind : kinds_) seen.*kind.seen = std::max(seen.*kind.seen, ends.at(kind.place_of(question.place.second)));
        if (question.first >= question.end) return;
        Sought& sought = sought_[question.place] = {question.first, question.end, marks};
        const auto oldest = question.seen ? std::nullopt : oldest_end(question, stop);
        for (const Kind& kind : kinds_) {
            const TopicPartition place = kind.place_of(question.place.second);
            std::int64_t& from = sought.from.*kind.seen;
            if (oldest) from = first_offset_since(connection_, place, *oldest).value_or(0);
            if (from >= ends.at(place)) continue;
            const auto [start, is_new] = starts_.try_emplace(place, from);
            if (!is_new) start->second = std::min(start->second, from);
        }
    }

    // Returns false when a stop was requested. Throws KafkaError after `patience` without news.
    bool read(const EndOffsets& ends, const std::stop_token& stop, std::optional<milliseconds> patience) {
        if (starts_.empty()) return true;
        RecordReader::Options options{.positions_only = true};
        for (const auto& [place, start] : starts_) options.positions.push_back({place.first, place.second, start});
        RecordReader reader(connection_.config(), std::move(options));
        LogPace progress(progress_interval);
        progress.restart();
        const auto may_go_on = [&](const RecordReader::Behind& behind) {
            const auto& [topic, partition, next] = behind.position;
            if (patience && behind.quiet > *patience) {
                throw KafkaError(
                    fmt::format("{} [{}]: a transaction is open at offset {}, and whether the records after it are committed cannot be "
                                "known: start the worker again",
                                topic, partition, next));
            }
            if (!patience && behind.quiet > connection_.config().deadline_later) {
                throw KafkaError(
                    fmt::format("{} [{}]: nothing comes from offset {} on, but the log ended at {}: it was truncated or "
                                "recreated meanwhile; restart the worker to read the new contents",
                                topic, partition, next, behind.end));
            }
            if (progress.is_due())
                log_info("{} [{}]: reading the results of earlier jobs, at offset {} of {}", topic, partition, next, behind.end);
            return !stop.stop_requested();
        };
        return reader.read_to(ends, may_go_on, [&](const schema::JobRecord& record) { take(record); });
    }

    std::map<TopicPartition, PastResults::Answer> take_answers() { return std::move(answers_); }

private:
    // The jobs of a partition that are asked about, and the offsets from which records count.
    struct Sought {
        std::int64_t first = 0;
        std::int64_t end = 0;
        EndsSeen from;
    };

    static void leave_out_foreign(std::int64_t& mark, const TopicPartition& place, const EndOffsets& written) {
        const std::int64_t end = written.at(place);
        if (mark <= end) return;
        log_warning("{} [{}] ends at offset {}, but its records were seen up to {}: it was truncated or recreated; reading all of it",
                    place.first, place.second, end, mark);
        mark = 0;
    }

    // The earliest time at which one of these jobs can have ended: no job ends before it was written. nullopt: unknown.
    std::optional<schema::Timestamp> oldest_end(const Question& question, const std::stop_token& stop) const {
        const auto oldest = first_record(connection_.config(), {question.place.first, question.place.second, question.first}, stop);
        if (!oldest || !oldest->timestamp) return std::nullopt;
        return *oldest->timestamp - clocks_apart;
    }

    // The job of our topics that this record ended; nullopt: it names none.
    std::optional<schema::Source> ended_job(const schema::JobRecord& record, const Kind& kind) const {
        auto named = kind.source(record.headers);
        if (!named || !schema::is_job_of(*named, input_ids_)) return std::nullopt;
        return std::move(named->source);
    }

    void take(const schema::JobRecord& record) {
        const auto kind = std::ranges::find(kinds_, record.source.topic, &Kind::topic);
        CHECK(kind != kinds_.end(), "only these topics are read");
        const auto job = ended_job(record, *kind);
        const auto found = job ? sought_.find({job->topic, job->partition}) : sought_.end();
        if (found == sought_.end() || job->offset < found->second.first || job->offset >= found->second.end) return;
        // Another partition's question may start earlier in the same log.
        if (record.source.offset >= found->second.from.*kind->seen) answers_[{job->topic, job->partition}].ended.insert(job->offset);
    }

    const KafkaConnection& connection_;
    const schema::TopicIds input_ids_;
    const std::array<Kind, 2> kinds_;
    std::map<TopicPartition, PastResults::Answer> answers_;  // by partition of jobs
    std::map<TopicPartition, Sought> sought_;
    std::map<TopicPartition, std::int64_t> starts_;  // where reading each partition starts
};

}  // namespace

EndTopics PastResults::end_topics() {
    const std::scoped_lock lock(mutex_);
    if (!end_topics_) {
        EndTopics found{.results = connection_.required_partition_count(topics_.results()),
                        .dead_letters = connection_.required_partition_count(topics_.dlq()),
                        .input_ids = {}};
        for (const std::string& topic : topics_.inputs()) found.input_ids[topic] = connection_.topic_id(topic);
        end_topics_ = std::move(found);
    }
    return *end_topics_;
}

// The new topic may differ in ways that are not known here, such as its number of partitions, and results would name the old id.
bool PastResults::check_inputs(milliseconds deadline, const std::stop_token& stop) {
    for (const auto& [topic, known_id] : end_topics().input_ids) {
        const auto id = connection_.topic_id(topic, deadline, stop);
        if (!id) return false;
        if (schema::ids_differ(known_id, *id)) {
            throw KafkaError(fmt::format("{} was recreated while this worker ran; restart the worker to read the new topic", topic));
        }
    }
    return true;
}

std::optional<std::map<TopicPartition, PastResults::Answer>> PastResults::ask(const std::vector<Question>& questions,
                                                                              const std::stop_token& stop,
                                                                              std::optional<milliseconds> patience) {
    Search search(connection_, topics_, end_topics());
    const TopicPartitions places = search.places_of(questions);
    const milliseconds deadline = connection_.config().deadline_later;
    const auto committed = wait_for_end_offsets(connection_, places, RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED, deadline, stop);
    const auto written = wait_for_end_offsets(connection_, places, RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED, deadline, stop);
    if (!committed || !written) return std::nullopt;
    const EndOffsets& ends = patience ? *written : *committed;
    for (const Question& question : questions) search.add(question, ends, *written, stop);
    if (!search.read(ends, stop, patience)) return std::nullopt;
    return search.take_answers();
}

}  // namespace lorry::consumer
