// Two threads: one serves what the producer reports, the other reads results and chunks. Both look calls up by their id, the key of all
// their records, so that records of others cost no parsing.
#include "consumer/kafka/calls/kafka_calls.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "consumer/call_record.h"
#include "consumer/kafka/calls/call_end.h"
#include "consumer/kafka/calls/call_stream.h"
#include "consumer/kafka/connection.h"
#include "consumer/kafka/reader.h"
#include "consumer/kafka/times.h"
#include "consumer/log.h"

namespace lorry::consumer {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using schema::Json;

constexpr milliseconds reader_turn{100};
constexpr milliseconds cancels_patience{5'000};          // at the end
constexpr std::size_t record_bytes_besides = 64 << 10;   // of a call's record, besides its body, at most
constexpr std::size_t record_bytes_besides_usual = 512;  // the same, of most

KafkaSettings producer_settings_of(const KafkaCalls::Options& options) {
    KafkaSettings settings = producer_settings({.record_bytes_max = options.call_bytes_max + record_bytes_besides});
    settings.emplace_back("message.timeout.ms", std::to_string(options.send_timeout.count()));
    settings.emplace_back("linger.ms", "0");  // somebody waits
    return settings;
}

std::vector<schema::Header> headers_of(const Call& call, const std::optional<milliseconds>& timeout) {
    std::vector<schema::Header> headers;
    if (!call.tenant.empty()) headers.emplace_back(schema::tenant_header, call.tenant);
    if (!call.key.empty()) headers.emplace_back(schema::api_key_id_header, call.key);
    headers.insert(headers.end(), call.trace.begin(), call.trace.end());
    if (timeout) {
        const auto deadline = std::chrono::system_clock::now().time_since_epoch() + *timeout;
        headers.emplace_back(schema::deadline_header, std::to_string(std::chrono::duration_cast<milliseconds>(deadline).count()));
    }
    return headers;
}

bool is_success(const CallEnd& end) {
    const auto* result = std::get_if<CallResult>(&end);
    return result != nullptr && result->status == 200;
}

struct OpenCall {
    CallListener& listener;
    std::optional<schema::Source> place = {};  // once the brokers have taken it
    bool is_sent = false;                      // the brokers have it, although it may not be known where
    bool is_cancelled = false;                 // before it was sent
    CallStream stream = {};
    std::size_t attempts = 0;
    std::int64_t last_attempt = 0;
    // The result has come, and chunks of its attempt have not.
    struct Ending {
        std::int64_t attempt = 0;
        std::int64_t chunks = 0;
        CallEnd end;
    };
    std::optional<Ending> ending = {};
};
using OpenCalls = std::unordered_map<std::string, OpenCall>;

}  // namespace

struct KafkaCalls::State {
    State(const KafkaConfig& the_config, Options the_options);
    ~State();

    static void on_report(rd_kafka_t* client, const rd_kafka_message_t* message, void* opaque);
    void report(std::uint64_t tag, rd_kafka_resp_err_t error, std::int32_t partition, std::int64_t offset);
    void serve_reports(const std::stop_token& stop);
    void read(const std::stop_token& stop);
    void take(const schema::JobRecord& record);
    void take_result(const schema::JobRecord& record);
    void take_chunk(const schema::JobRecord& record);
    bool is_of_open_call(const schema::JobRecord& record) const;
    bool is_away() const { return reader_away || producer_away; }
    void fail(const std::string& why);
    // With mutex held.
    std::optional<std::int32_t> partition_for(std::size_t bytes) const;
    void count_unanswered(const std::string& id, std::int32_t partition, std::size_t bytes);
    void forget_unanswered(const std::string& id);
    void send_cancel(const std::string& id, const schema::Source& place);
    void end(OpenCalls::iterator call, CallEnd end);
    void end_if_complete(OpenCalls::iterator call);
    void end_all();

    const Options options;
    std::int32_t partitions = 0;  // of the calls topic
    std::string topic_id;
    std::atomic<bool> reader_away = false;
    std::atomic<bool> producer_away = false;

    mutable std::mutex mutex;
    std::condition_variable changed;
    // Guarded by mutex.
    OpenCalls open;                                          // by id
    std::unordered_map<std::uint64_t, std::string> sending;  // ids of calls that the brokers have not taken yet, by tag
    std::uint64_t next_tag = 0;
    std::int32_t next_partition = 0;
    // With partition_bytes_max: calls that perhaps no worker has read yet, also if nobody waits for them any more.
    struct Unanswered {
        std::int32_t partition = 0;
        std::size_t bytes = 0;
    };
    std::unordered_map<std::string, Unanswered> unanswered;     // by id
    std::map<std::int32_t, std::size_t> unanswered_bytes = {};  // by partition
    bool is_closed = false;
    Stats counts;
    std::optional<std::string> failure;

    KafkaConnection producer;  // its reports write to the members above
    RecordReader reader;       // the reading thread's
    std::jthread reporting;
    std::jthread reading;
};

KafkaCalls::State::State(const KafkaConfig& the_config, Options the_options)
    : options(std::move(the_options)),
      producer(
          the_config, KafkaConnection::Kind::producer, producer_settings_of(options),
          [](rd_kafka_conf_t* conf) { rd_kafka_conf_set_dr_msg_cb(conf, on_report); }, this),
      // From before the first call on, so that no result is missed. A batch that cannot be read must not hold up those after it.
      reader(the_config, {.topics = {options.topics.results(), options.topics.chunks()},
                          .start = RecordReader::End{},
                          .passes_unreadable = true,
                          .is_waited_for = true}) {
    partitions = producer.required_partition_count(options.topics.calls());
    producer.required_partition_count(options.topics.control());
    topic_id = producer.topic_id(options.topics.calls());
    reporting = std::jthread([this](const std::stop_token& stop) { serve_reports(stop); });
    reading = std::jthread([this](const std::stop_token& stop) { read(stop); });
}

KafkaCalls::State::~State() {
    reporting.request_stop();
    reading.request_stop();
}

// Called from C, within rd_kafka_poll and rd_kafka_flush.
void KafkaCalls::State::on_report(rd_kafka_t*, const rd_kafka_message_t* message, void* opaque) {
    auto* self = static_cast<State*>(static_cast<KafkaContext*>(opaque)->owner);
    const auto tag = reinterpret_cast<std::uint64_t>(message->_private);  // NOLINT: produce() put a number there
    self->report(tag, message->err, message->partition, message->offset);
}

void KafkaCalls::State::report(std::uint64_t tag, rd_kafka_resp_err_t error, std::int32_t partition, std::int64_t offset) {
    const std::lock_guard lock(mutex);
    const auto sent = sending.extract(tag);
    if (sent.empty()) {  // a cancel
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
            log_warning("{}: a cancel was not taken: {}", options.topics.control(), rd_kafka_err2str(error));
        return;
    }
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) forget_unanswered(sent.mapped());
    const auto call = open.find(sent.mapped());
    if (call == open.end()) return;
    if (error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) {
        ++counts.unsent;
        return end(call, call_failed(schema::ErrorCode::payload_too_large, "the call is larger than the brokers take: send less"));
    }
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        ++counts.unsent;
        if (producer.complaints().note(rd_kafka_err2str(error))) {
            log_warning("{}: a call was not taken: {}", options.topics.calls(), explain(error, options.topics.calls()));
        }
        return end(call, call_unavailable);
    }
    call->second.is_sent = true;
    if (offset >= 0) call->second.place = {.topic = options.topics.calls(), .partition = partition, .offset = offset};
    if (!call->second.is_cancelled) return;
    if (call->second.place) send_cancel(call->first, *call->second.place);
    open.erase(call);
    changed.notify_all();
}

void KafkaCalls::State::serve_reports(const std::stop_token& stop) {
    try {
        while (!stop.stop_requested()) {
            rd_kafka_poll(producer.handle(), static_cast<int>(poll_turn.count()));
            producer.check_fatal();
            producer.check_reachable();
            producer_away = producer.is_away();
            // Calls that were about to be sent end at once, and are not run for nobody when the brokers are back.
            if (producer_away) rd_kafka_purge(producer.handle(), RD_KAFKA_PURGE_F_QUEUE);
        }
    } catch (const std::exception& error) {
        fail(error.what());
    }
}

void KafkaCalls::State::read(const std::stop_token& stop) {
    try {
        auto next_refresh = Clock::now() + refresh_interval;
        while (!stop.stop_requested()) {
            for (const schema::JobRecord& record : reader.poll(reader_turn)) take(record);
            reader_away = reader.is_away();
            if (Clock::now() < next_refresh) continue;
            next_refresh = Clock::now() + refresh_interval;
            reader.refresh();
        }
    } catch (const std::exception& error) {
        fail(error.what());
    }
}

void KafkaCalls::State::fail(const std::string& why) {
    log_error("calls cannot be served any more: {}", why);
    const std::lock_guard lock(mutex);
    if (!failure) failure = why;
    is_closed = true;
    end_all();
}

bool KafkaCalls::State::is_of_open_call(const schema::JobRecord& record) const { return record.key && open.contains(*record.key); }

// The next one in turn that has room; nullopt: none has.
std::optional<std::int32_t> KafkaCalls::State::partition_for(std::size_t bytes) const {
    if (!options.partition_bytes_max) return next_partition;
    for (std::int32_t i = 0; i < partitions; ++i) {
        const std::int32_t partition = (next_partition + i) % partitions;
        const auto taken = unanswered_bytes.find(partition);
        if (taken == unanswered_bytes.end() || taken->second + bytes <= *options.partition_bytes_max) return partition;
    }
    return std::nullopt;
}

void KafkaCalls::State::count_unanswered(const std::string& id, std::int32_t partition, std::size_t bytes) {
    if (!options.partition_bytes_max) return;
    unanswered.emplace(id, Unanswered{.partition = partition, .bytes = bytes});
    unanswered_bytes[partition] += bytes;
}

void KafkaCalls::State::forget_unanswered(const std::string& id) {
    const auto place = unanswered.find(id);
    if (place == unanswered.end()) return;
    const auto [partition, bytes] = place->second;
    unanswered.erase(place);
    if ((unanswered_bytes.at(partition) -= bytes) == 0) unanswered_bytes.erase(partition);
}

void KafkaCalls::State::take(const schema::JobRecord& record) {
    {
        const std::lock_guard lock(mutex);
        if (record.key) forget_unanswered(*record.key);
        if (!is_of_open_call(record)) return;  // of another gateway, of a batch, or of a call that nobody waits for
    }
    record.source.topic == options.topics.results() ? take_result(record) : take_chunk(record);
}

void KafkaCalls::State::take_result(const schema::JobRecord& record) {
    const auto job = schema::source_of_result(record.headers);
    if (!job || job->source.topic != options.topics.calls()) return;
    const std::int64_t attempt = schema::find_number<std::int64_t>(record.headers, schema::attempt_header).value_or(0);
    const std::int64_t chunks = schema::find_number<std::int64_t>(record.headers, schema::chunks_header).value_or(0);
    CallEnd end = call_end_of(record);
    const std::lock_guard lock(mutex);
    const auto call = open.find(*record.key);
    if (call == open.end() || call->second.ending) return;
    // The chunks were there before, but their partition may be read later. An error needs no text.
    call->second.ending = {.attempt = attempt, .chunks = is_success(end) ? chunks : 0, .end = std::move(end)};
    end_if_complete(call);
}

void KafkaCalls::State::take_chunk(const schema::JobRecord& record) {
    const auto value = Json::parse(record.value.value_or(""));
    if (!value) return;
    const Json* chunk = value->find("chunk");
    const Json* attempt = value->find("attempt");
    const Json* seq = value->find("seq");
    if (chunk == nullptr || attempt == nullptr || !attempt->is_integer() || seq == nullptr || !seq->is_integer()) return;
    const std::lock_guard lock(mutex);
    const auto call = open.find(*record.key);
    if (call == open.end()) return;
    OpenCall& stream = call->second;
    if (stream.last_attempt != *attempt->as_integer()) {
        if (stream.last_attempt != 0) ++counts.restarted;
        stream.last_attempt = *attempt->as_integer();
    }
    const auto news = stream.stream.take(*attempt->as_integer(), *seq->as_integer(), *chunk);
    if (news && !stream.is_cancelled) stream.listener.on_chunk(call->first, news->dump());
    if (stream.ending) end_if_complete(call);
}

void KafkaCalls::State::end_if_complete(OpenCalls::iterator call) {
    OpenCall::Ending& ending = *call->second.ending;
    const CallStream& stream = call->second.stream;
    if (!stream.has(ending.attempt, ending.chunks)) return;
    if (ending.chunks == 0 || !stream.differs(ending.attempt)) return end(call, std::move(ending.end));
    ++counts.broken;
    end(call, call_failed(schema::ErrorCode::answer_changed,
                          "the call's worker ended, another ran the call again, and its answer differs from what was sent: send it again"));
}

void KafkaCalls::State::end(OpenCalls::iterator call, CallEnd end) {
    if (!call->second.is_cancelled) call->second.listener.on_end(call->first, std::move(end));
    open.erase(call);
    changed.notify_all();
}

void KafkaCalls::State::end_all() {
    while (!open.empty()) end(open.begin(), call_unavailable);
}

void KafkaCalls::State::send_cancel(const std::string& id, const schema::Source& place) {
    const std::string value = schema::encode_cancel({.id = id, .jobs_topic_id = topic_id, .call = place});
    const auto error = produce(
        producer.handle(),
        {.topic = options.topics.control(), .partition = std::nullopt, .key = id, .value = value, .headers = {}, .tag = next_tag++});
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
        log_warning("{}: call {} was not cancelled: {}", options.topics.control(), id, rd_kafka_err2str(error));
}

KafkaCalls::KafkaCalls(const KafkaConfig& config, Options options) {
    check_kafka_config(config);
    state_ = std::make_unique<State>(config, std::move(options));
}

KafkaCalls::~KafkaCalls() = default;

std::optional<CallRefusal> KafkaCalls::submit(Call call, CallListener& listener) {
    State& state = *state_;
    const std::string value = job_line_of(call);
    const auto headers = headers_of(call, state.options.call_timeout);
    const std::lock_guard lock(state.mutex);
    const auto refuse = [&](const CallRefusal& refusal) {
        ++state.counts.refused;
        return refusal;
    };
    if (state.is_closed || state.is_away()) return refuse(call_unavailable);
    if (state.open.size() >= state.options.calls_max) return refuse(CallRefusal{});
    const std::size_t bytes = value.size() + record_bytes_besides_usual;
    const auto partition = state.partition_for(bytes);
    if (!partition) return refuse(CallRefusal{});
    const std::uint64_t tag = state.next_tag++;
    const auto error = produce(
        state.producer.handle(),
        {.topic = state.options.topics.calls(), .partition = *partition, .key = call.id, .value = value, .headers = headers, .tag = tag});
    if (error == RD_KAFKA_RESP_ERR__QUEUE_FULL) return refuse(CallRefusal{});
    if (error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) return refuse({.kind = CallRefusal::Kind::too_large});
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        log_warning("{}: a call was not taken: {}", state.options.topics.calls(), explain(error, state.options.topics.calls()));
        return refuse(call_unavailable);
    }
    state.next_partition = (*partition + 1) % state.partitions;
    state.count_unanswered(call.id, *partition, bytes);
    ++state.counts.sent;
    state.sending.emplace(tag, call.id);
    const bool is_new = state.open.emplace(std::move(call.id), OpenCall{.listener = listener}).second;
    CHECK(is_new, "each call has an id of its own");
    return std::nullopt;
}

void KafkaCalls::refuse_more() {
    const std::lock_guard lock(state_->mutex);
    state_->is_closed = true;
}

void KafkaCalls::cancel(const std::string& id) {
    State& state = *state_;
    const std::lock_guard lock(state.mutex);
    const auto call = state.open.find(id);
    if (call == state.open.end() || std::exchange(call->second.is_cancelled, true)) return;
    ++state.counts.cancelled;
    if (!call->second.is_sent) return;  // report() goes on
    if (call->second.place) state.send_cancel(id, *call->second.place);
    state.open.erase(call);
    state.changed.notify_all();
}

void KafkaCalls::close(milliseconds patience) {
    State& state = *state_;
    {
        std::unique_lock lock(state.mutex);
        state.is_closed = true;
        state.changed.wait_for(lock, patience, [&] { return state.open.empty(); });
        for (const auto& [id, call] : state.open) {
            if (call.place) state.send_cancel(id, *call.place);
        }
        state.end_all();
    }
    rd_kafka_flush(state.producer.handle(), static_cast<int>(cancels_patience.count()));
    state.reporting = {};
    state.reading = {};
}

KafkaCalls::Stats KafkaCalls::stats() const {
    const std::lock_guard lock(state_->mutex);
    Stats stats = state_->counts;
    stats.open = state_->open.size();
    stats.is_away = state_->is_away();
    return stats;
}

std::optional<std::string> KafkaCalls::failure() const {
    const std::lock_guard lock(state_->mutex);
    return state_->failure;
}

}  // namespace lorry::consumer
