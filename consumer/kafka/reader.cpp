// RecordReader over librdkafka's simple consumer. It has no group, so it needs no coordinator and no rights on one.
#include "consumer/kafka/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "consumer/kafka/connection.h"
#include "consumer/kafka/end_offsets.h"
#include "consumer/log.h"
#include "consumer/reading_pace.h"
#include "schema/check.h"

namespace lorry::consumer {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

using Key = std::pair<std::string, std::int32_t>;

struct Partition {
    std::int64_t next = 0;  // everything below was read or does not exist
    bool at_end = false;    // as of the broker's last answer
    std::int64_t end = 0;   // as known when reading started
    std::int64_t begun = 0;
    std::optional<UnreadableRecord> unreadable = {};  // blocks the partition
};

constexpr milliseconds unreadable_patience{10'000};
constexpr milliseconds ends_patience{1'000};

std::string text_of(const UnreadableRecord& record) {
    return fmt::format("{} [{}]: the record at offset {} cannot be read: {}", record.topic, record.partition, record.offset, record.reason);
}

}  // namespace

struct RecordReader::State {
    Options options;
    KafkaConnection connection;
    QueueHandle queue;
    std::map<std::string, LocalTopicHandle> topics;
    std::map<Key, Partition> partitions;
    std::optional<schema::Timestamp> not_before;  // older records are skipped

    State(const KafkaConfig& config, Options given)
        : options(std::move(given)),
          connection(config, KafkaConnection::Kind::consumer,
                     {{"isolation.level", options.uncommitted ? "read_uncommitted" : "read_committed"},
                      {"auto.offset.reset", "earliest"},
                      {"enable.partition.eof", "true"},
                      {"enable.auto.offset.store", "false"},
                      {"enable.auto.commit", "false"},
                      {"queued.min.messages", "1000"},
                      {"queued.max.messages.kbytes", "16384"},
                      {"fetch.message.max.bytes", "1048576"}}),
          queue(rd_kafka_queue_new(connection.handle())) {}

    ~State() {
        if (is_paced()) connection.config().pace->forget(this);
        for (const auto& [key, partition] : partitions) rd_kafka_consume_stop(topics.at(key.first).get(), key.second);
    }

    bool is_paced() const { return options.is_waited_for && connection.config().pace; }

    void note_pace() const {
        if (!is_paced()) return;
        ReadingPace::Offsets offsets;
        for (const auto& [key, partition] : partitions) offsets[key] = partition.next;
        connection.config().pace->note(this, std::move(offsets));
    }

    std::int64_t start_of(const Key& key, const KafkaConnection::Watermarks& marks, const Start& start) {
        for (const TopicOffset& position : options.positions) {
            if (position.topic == key.first && position.partition == key.second) return position.next;
        }
        if (std::holds_alternative<End>(start)) return marks.end;
        const auto* time = std::get_if<schema::Timestamp>(&start);
        if (time == nullptr) return marks.first;
        // If the broker does not say, the records' own times decide.
        return std::min(first_offset_since(connection, key, *time).value_or(marks.first), marks.end);
    }

    void start_reading(const Key& key, std::int64_t next, std::int64_t end) {
        LocalTopicHandle& local = topics[key.first];
        if (!local) local.reset(rd_kafka_topic_new(connection.handle(), key.first.c_str(), nullptr));
        if (rd_kafka_consume_start_queue(local.get(), key.second, next, queue.get()) != 0) {
            throw KafkaError(
                fmt::format("{} [{}]: reading could not be started: {}", key.first, key.second, rd_kafka_err2str(rd_kafka_last_error())));
        }
        partitions[key] = {.next = next, .at_end = false, .end = end, .begun = next};
    }

    // Adds the partitions of these topics (name, partition count). Queries all of them before it reads the first: a broker answers the
    // requests of a connection in order, so each query would wait for a fetch that finds nothing. marks_of: where a partition's log begins
    // and ends; nullopt: it is not added now.
    template <typename MarksOf>
    void add(const std::vector<std::pair<std::string, std::int32_t>>& counts, const Start& start, const MarksOf& marks_of) {
        struct Begin {
            Key key;
            std::int64_t next = 0;
            std::int64_t end = 0;
        };
        std::vector<Begin> begins;
        for (const auto& [topic, count] : counts) {
            for (std::int32_t number = 0; number < count; ++number) {
                const Key key{topic, number};
                if (partitions.contains(key)) continue;
                const std::optional<KafkaConnection::Watermarks> marks = marks_of(key);
                if (marks) begins.push_back({key, start_of(key, *marks, start), marks->end});
            }
        }
        for (const Begin& begin : begins) start_reading(begin.key, begin.next, begin.end);
    }

    void take(rd_kafka_message_t& message, std::vector<schema::JobRecord>& records) {
        if (message.rkt == nullptr) return;
        const Key key{rd_kafka_topic_name(message.rkt), message.partition};
        const auto found = partitions.find(key);
        if (found == partitions.end()) return;
        Partition& partition = found->second;
        if (message.err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            partition.next = std::max(partition.next, message.offset);
            partition.at_end = true;
            return;
        }
        if (message.err != RD_KAFKA_RESP_ERR_NO_ERROR) {
            if (is_configuration_error(message.err)) {
                throw connection.refused(fmt::format("reading {} [{}]", key.first, key.second), message.err, key.first);
            }
            if (auto record = unreadable_record(message, partition.next)) {
                if (!partition.unreadable && !options.is_quiet) log_error("{}", text_of(*record));
                partition.unreadable = std::move(record);
            }
            connection.complaints().note(rd_kafka_message_errstr(&message));  // the client tries again by itself
            return;
        }
        partition.next = message.offset + 1;
        partition.at_end = false;
        partition.unreadable.reset();
        schema::JobRecord record = record_of(message);
        if (!record.value && record.key == schema::filler_key) return;
        if (!not_before || !record.timestamp || *record.timestamp >= *not_before) records.push_back(std::move(record));
    }

    void pass_unreadable() {
        for (auto& [key, partition] : partitions) {
            const auto record = std::exchange(partition.unreadable, std::nullopt);
            if (!record) continue;
            const auto log = connection.watermarks(key.first, key.second, connection.config().deadline_later);
            const auto batch = unreadable_batch_at(connection.config(), key.first, key.second, record->offset, log.end);
            if (!batch) continue;
            rd_kafka_consume_stop(topics.at(key.first).get(), key.second);
            const Partition before = partition;
            start_reading(key, batch->end, before.end);
            partition.begun = before.begun;
        }
    }
};

RecordReader::RecordReader(const KafkaConfig& config, Options options) : state_(std::make_unique<State>(config, std::move(options))) {
    if (const auto* time = std::get_if<schema::Timestamp>(&state_->options.start)) state_->not_before = *time;
    if (state_->options.positions_only) {
        CHECK(state_->options.topics.empty(), "positions only");
        for (const auto& [topic, partition, next] : state_->options.positions) state_->start_reading({topic, partition}, next, next);
    }
    std::vector<std::pair<std::string, std::int32_t>> counts;
    for (const std::string& topic : state_->options.topics) counts.emplace_back(topic, state_->connection.required_partition_count(topic));
    const KafkaConnection& connection = state_->connection;
    state_->add(counts, state_->options.start,
                [&](const Key& key) { return connection.watermarks(key.first, key.second, connection.config().deadline_start); });
    state_->note_pace();
}

RecordReader::~RecordReader() = default;
RecordReader::RecordReader(RecordReader&&) noexcept = default;
RecordReader& RecordReader::operator=(RecordReader&&) noexcept = default;

std::vector<schema::JobRecord> RecordReader::poll(milliseconds timeout, std::size_t max) {
    std::vector<schema::JobRecord> records;
    State& state = *state_;
    rd_kafka_poll(state.connection.handle(), 0);  // delivers errors
    state.connection.check_fatal();
    state.connection.check_reachable();
    MessageHandle message(rd_kafka_consume_queue(state.queue.get(), static_cast<int>(timeout.count())));
    for (std::size_t taken = 0; message && taken < max; ++taken) {
        state.take(*message, records);
        message.reset();
        if (taken + 1 < max) message.reset(rd_kafka_consume_queue(state.queue.get(), 0));
    }
    if (state.options.passes_unreadable) state.pass_unreadable();
    state.note_pace();
    return records;
}

bool RecordReader::read_to(const Ends& ends, const std::function<bool(const Behind&)>& may_go_on,
                           const std::function<void(const schema::JobRecord&)>& take) {
    constexpr milliseconds poll_timeout{200};
    constexpr std::size_t records_max = 1000;
    std::vector<TopicOffset> seen;
    auto last_news = Clock::now();
    for (;;) {
        const auto now = Clock::now();
        const auto positions = this->positions();
        // Judged by positions, not records: poll() does not return fillers.
        if (positions != seen || is_away()) last_news = now;
        seen = positions;
        const auto end_of = [&](const TopicOffset& position) { return ends.at({position.topic, position.partition}); };
        const auto behind = std::ranges::find_if(positions, [&](const TopicOffset& position) { return position.next < end_of(position); });
        if (behind == positions.end()) return true;
        const auto quiet = std::chrono::duration_cast<milliseconds>(now - last_news);
        const auto& unreadable = state_->partitions.at({behind->topic, behind->partition}).unreadable;
        if (unreadable && quiet > unreadable_patience) {
            throw KafkaError(text_of(*unreadable) +
                             ". It may say which jobs have ended: repair the topic's log on the brokers, or run jobs from the committed "
                             "offsets on again, for another result each, with `lorry offsets reset --replay`");
        }
        if (!may_go_on({.position = *behind, .end = end_of(*behind), .quiet = quiet})) return false;
        for (const schema::JobRecord& record : poll(poll_timeout, records_max)) take(record);
    }
}

bool RecordReader::is_away() const { return state_->connection.is_away(); }

bool RecordReader::at_end() const {
    return std::all_of(state_->partitions.begin(), state_->partitions.end(), [](const auto& entry) { return entry.second.at_end; });
}

std::optional<UnreadableRecord> RecordReader::unreadable() const {
    for (const auto& [key, partition] : state_->partitions) {
        if (partition.unreadable) return partition.unreadable;
    }
    return std::nullopt;
}

std::optional<RecordReader::Ends> RecordReader::ends_now(EndKind kind) const {
    if (is_away()) return std::nullopt;
    TopicPartitions all;
    for (const auto& [key, partition] : state_->partitions) all.push_back(key);
    const bool all_records = kind == EndKind::written || state_->options.uncommitted;
    const auto level = all_records ? RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED : RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED;
    auto ends = end_offsets(state_->connection, all, level, {}, ends_patience);
    return ends ? std::optional(*std::move(ends)) : std::nullopt;
}

bool RecordReader::has_read(const Ends& ends) const {
    return std::ranges::all_of(ends, [&](const auto& end) { return state_->partitions.at(end.first).next >= end.second; });
}

bool CatchUp::is_done() {
    if (!ends_) {
        moment_ = Clock::now();
        ends_ = reader_.ends_now(kind_);
    }
    return ends_ && reader_.has_read(*ends_);
}

std::int64_t RecordReader::remaining() const {
    std::int64_t total = 0;
    for (const auto& [key, partition] : state_->partitions) {
        if (partition.at_end) continue;
        std::int64_t first = 0;
        std::int64_t end = 0;
        const auto error = rd_kafka_get_watermark_offsets(state_->connection.handle(), key.first.c_str(), key.second, &first, &end);
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR || end < 0) end = partition.end;
        total += std::max<std::int64_t>(0, end - partition.next);
    }
    return total;
}

std::vector<TopicOffset> RecordReader::positions() const {
    std::vector<TopicOffset> list;
    for (const auto& [key, partition] : state_->partitions) list.push_back({key.first, key.second, partition.next});
    return list;
}

std::vector<TopicOffset> RecordReader::ends_at_start() const {
    std::vector<TopicOffset> list;
    for (const auto& [key, partition] : state_->partitions) list.push_back({key.first, key.second, partition.end});
    return list;
}

std::vector<RecordReader::Bounds> RecordReader::bounds() {
    std::vector<Bounds> list;
    for (const auto& [key, partition] : state_->partitions) {
        const auto marks = state_->connection.watermarks(key.first, key.second, state_->connection.config().deadline_later);
        list.push_back({key.first, key.second, marks.first, marks.end, partition.begun});
    }
    return list;
}

std::string RecordReader::cluster_id() const { return state_->connection.cluster_id(); }

std::vector<std::pair<std::string, std::string>> RecordReader::topic_ids() const {
    std::vector<std::pair<std::string, std::string>> ids;
    for (const std::string& topic : state_->options.topics) ids.emplace_back(topic, state_->connection.topic_id(topic));
    return ids;
}

void RecordReader::refresh() {
    std::vector<std::pair<std::string, std::int32_t>> counts;
    for (const std::string& topic : state_->options.topics) {
        if (const auto count = state_->connection.try_partition_count(topic)) counts.emplace_back(topic, *count);
    }
    // One without a leader is added later, and keeps nobody from reading the others.
    state_->add(counts, Beginning{}, [&](const Key& key) { return state_->connection.try_watermarks(key.first, key.second); });
}

}  // namespace lorry::consumer
