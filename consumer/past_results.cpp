// Reading results for the sources they name.
#include "consumer/past_results.h"

#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "consumer/kafka_connection.h"
#include "consumer/kafka_reader.h"

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds poll_timeout{200};
constexpr std::size_t records_max = 1000;
// How far the clocks of producers, workers and brokers may be apart.
constexpr std::chrono::minutes clocks_apart{10};

struct Headers {
    std::string_view topic;
    std::string_view partition;
    std::string_view offset;
};
constexpr Headers of_results{schema::source_topic_header, schema::source_partition_header, schema::source_offset_header};
constexpr Headers of_dead_letters{schema::dead_letter_topic_header, schema::dead_letter_partition_header,
                                  schema::dead_letter_offset_header};

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

// The first record from that offset on; nullopt: there is none.
std::optional<schema::JobRecord> first_record(const KafkaConfig& config, const std::string& topic, std::int32_t partition,
                                              std::int64_t offset, const std::stop_token& stop) {
    RecordReader reader(config, {.topics = {topic}, .partition = partition, .positions = {{topic, partition, offset}}});
    while (!stop.stop_requested()) {
        auto records = reader.poll(poll_timeout, 1);
        if (!records.empty()) return std::move(records.front());
        if (reader.at_end()) return std::nullopt;
    }
    return std::nullopt;
}

}  // namespace

std::set<std::int64_t> ended_jobs(const KafkaConfig& config, const schema::Topics& topics, std::int32_t partition, std::int64_t first,
                                  const std::stop_token& stop) {
    std::set<std::int64_t> ended;
    // Sees the log's end for everybody, committed or not: what is above it was written later.
    const KafkaConnection all(config, KafkaConnection::Kind::consumer, {{"isolation.level", "read_uncommitted"}});
    struct Log {
        std::string topic;
        Headers names;
        std::int32_t partition = 0;
        std::int64_t end = 0;
    };
    std::vector<Log> logs = {{topics.results(), of_results}, {topics.dlq(), of_dead_letters}};
    for (Log& log : logs) {
        log.partition = partition % all.required_partition_count(log.topic);
        const auto marks = all.watermarks(log.topic, log.partition, config.deadline_later, stop);
        if (!marks) return ended;
        log.end = marks->end;
    }
    std::erase_if(logs, [](const Log& log) { return log.end == 0; });
    if (logs.empty()) return ended;  // a new group, mostly

    const auto oldest = first_record(config, topics.jobs(), partition, first, stop);
    if (!oldest) return ended;
    RecordReader::Start start = RecordReader::Beginning{};
    if (oldest->timestamp) start = *oldest->timestamp - clocks_apart;
    const std::string topic_id = all.topic_id(topics.jobs());
    for (const Log& log : logs) {
        RecordReader reader(config, {.topics = {log.topic}, .partition = log.partition, .start = start});
        while (!stop.stop_requested() && reader.positions().front().next < log.end) {
            for (const schema::JobRecord& record : reader.poll(poll_timeout, records_max)) {
                const auto offset = number(header(record, log.names.offset));
                const auto id = header(record, schema::source_topic_id_header);
                if (header(record, log.names.topic) != topics.jobs() || number(header(record, log.names.partition)) != partition) continue;
                if (id && !topic_id.empty() && *id != topic_id) continue;
                if (offset && *offset >= first) ended.insert(*offset);
            }
        }
    }
    return ended;
}

}  // namespace lorry::consumer
