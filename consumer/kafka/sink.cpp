// Converts completions to records of the results, status and dlq topics, and keeps the outbox in which they wait for their commit.
#include "consumer/kafka/sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "consumer/log.h"
#include "schema/codec.h"

namespace lorry::consumer {

namespace {

// A record that is refused this often is replaced by an error. One retry helps when the broker's limits have just changed.
constexpr std::uint32_t rejections_max = 2;

schema::Status terminal_status(const schema::Completion& completion) {
    return {.run = completion.run, .state = completion.state, .usage = completion.usage, .error = schema::error_text(completion)};
}

}  // namespace

KafkaSink::KafkaSink(const KafkaConfig& config, Options options, std::unique_ptr<Committer> committer)
    : options_(std::move(options)),
      committer_(std::move(committer)),
      producer_(config, {.limits = producer_limits({options_.limits.chunks, options_.limits.status}),
                         .on_delivery = [this](const KafkaProducer::Delivery& delivery) {
                             auto event = events_.extract(delivery.tag);
                             CHECK(!event.empty(), "each event is delivered once");
                             if (delivery.error == RD_KAFKA_RESP_ERR_NO_ERROR) return;
                             if (event.mapped()) broken_streams_.insert(std::move(*event.mapped()));
                         }}) {}

void KafkaSink::publish(Outcome outcome) {
    OutboxEntry entry = entry_of(std::move(outcome));
    if (!outbox_.empty() && (outbox_.size() >= options_.outbox_records_max || outbox_bytes_ + entry.bytes > options_.outbox_bytes_max)) {
        commit_outbox();
    }
    put(std::move(entry));
}

void KafkaSink::put(OutboxEntry entry) {
    outbox_bytes_ += entry.bytes;
    outbox_.push_back(std::move(entry));
    counters_.outbox_records = outbox_.size();
    counters_.outbox_bytes = outbox_bytes_;
}

OutboxEntry KafkaSink::entry_of(Outcome outcome) {
    OutboxEntry entry{.source = std::move(outcome.source), .epoch = outcome.epoch};
    if (auto* letter = std::get_if<schema::DeadLetter>(&outcome.record)) {
        ++counters_.dead_letters;
        entry.producer_headers = letter->headers.size();
        std::vector<schema::Header> headers = with_topic_id(schema::dead_letter_headers(*letter), entry.source.topic);
        entry.records.push_back({.topic = options_.topics.dlq(),
                                 .partition = letter->source.partition % options_.dlq_partitions,
                                 .key = std::move(letter->key),
                                 .value = std::move(letter->value),
                                 .headers = std::move(headers)});
        entry.bytes = bytes_of(entry.records.back());
        if (entry.bytes > options_.limits.dlq) leave_out_value(entry);
        if (entry.bytes > options_.limits.dlq) leave_out_key_and_headers(entry);
        return entry;
    }
    ++counters_.completions;
    auto& completion = std::get<schema::Completion>(outcome.record);
    set_records(entry, completion);
    completion.body = {};  // an error that replaces it does not need the body
    entry.completion = std::move(completion);
    if (const std::size_t bytes = bytes_of(entry.records.front()); bytes > options_.limits.results) {
        ++counters_.too_large;
        turn_into_error(entry, schema::ErrorCode::result_too_large,
                        fmt::format("the result has {} bytes, but topic {} accepts {} per record; ask for fewer tokens, logprobs or "
                                    "choices, or raise the topic's max.message.bytes",
                                    bytes, options_.topics.results(), options_.limits.results));
    }
    return entry;
}

std::vector<schema::Header> KafkaSink::with_topic_id(std::vector<schema::Header> headers, const std::string& topic) const {
    const auto id = options_.input_ids.find(topic);
    if (id != options_.input_ids.end() && !id->second.empty()) headers.emplace_back(schema::source_topic_id_header, id->second);
    return headers;
}

// A dead letter that is too large for the topic is published without its value: the headers say where it was and why it was refused.
void KafkaSink::leave_out_value(OutboxEntry& entry) {
    OutboxRecord& record = entry.records.front();
    if (record.value) record.headers.emplace_back("lorry.value.bytes_left_out", std::to_string(record.value->size()));
    record.value.reset();
    entry.bytes = bytes_of(record);
}

// If that is not enough, also without its key and the producer's headers, whatever their names.
void KafkaSink::leave_out_key_and_headers(OutboxEntry& entry) {
    OutboxRecord& record = entry.records.front();
    record.key.reset();
    const auto begin = record.headers.begin();
    record.headers.erase(begin, begin + static_cast<std::ptrdiff_t>(std::exchange(entry.producer_headers, 0)));
    entry.bytes = bytes_of(record);
}

void KafkaSink::set_records(OutboxEntry& entry, const schema::Completion& completion) {
    entry.records.clear();
    // The same partition as the job's, so that a worker that takes over the jobs finds their results in one place.
    entry.records.push_back({.topic = options_.topics.results(),
                             .partition = entry.source.partition % options_.results_partitions,
                             .key = completion.run.job_id,
                             .value = schema::encode_completion(completion),
                             .headers = with_topic_id(schema::completion_headers(completion), entry.source.topic)});
    entry.records.push_back({.topic = options_.topics.status(),
                             .partition = std::nullopt,
                             .key = completion.run.job_id,
                             .value = schema::encode_status(terminal_status(completion)),
                             .headers = {}});
    entry.bytes = 0;
    for (const OutboxRecord& record : entry.records) entry.bytes += bytes_of(record);
}

void KafkaSink::turn_into_error(OutboxEntry& entry, schema::ErrorCode code, std::string message) {
    CHECK(entry.completion.has_value(), "a dead letter is not replaced by an error");
    schema::Completion& completion = *entry.completion;
    completion.failure.reset();
    completion.failure_message.clear();
    completion.headers.clear();  // they count towards the size
    schema::set_error(completion, {.code = code, .param = {}, .message = std::move(message)});
    set_records(entry, completion);
    completion.body = {};
}

void KafkaSink::publish(const schema::Chunk& chunk) {
    ++counters_.chunks;
    send_event(options_.topics.chunks(), chunk.job_id, Attempt(chunk.job_id, chunk.attempt), schema::encode_chunk(chunk));
}

void KafkaSink::publish(const schema::Status& status) {
    CHECK(!schema::is_terminal(status.state), "terminal statuses are published with their completion");
    // Losing it does no harm: the terminal status follows.
    send_event(options_.topics.status(), status.run.job_id, std::nullopt, schema::encode_status(status));
}

void KafkaSink::send_event(std::string_view topic, const std::string& job_id, std::optional<Attempt> stream, const std::string& value) {
    const std::uint64_t tag = next_tag_++;
    events_.emplace(tag, stream);
    const auto sent = producer_.send({.topic = topic, .partition = std::nullopt, .key = job_id, .value = value, .headers = {}, .tag = tag});
    if (!sent) {
        events_.erase(tag);
        if (stream) broken_streams_.insert(*stream);
    }
    producer_.poll(std::chrono::milliseconds(0));
}

std::size_t KafkaSink::commit() {
    commit_outbox();
    return std::exchange(uncounted_, 0);
}

std::size_t KafkaSink::commit_calls() {
    std::vector<OutboxEntry> calls = take_outbox();
    const auto is_call = [&](const OutboxEntry& entry) { return entry.source.topic == options_.topics.calls(); };
    const auto rest = std::ranges::stable_partition(calls, is_call);
    std::vector<OutboxEntry> others(std::make_move_iterator(rest.begin()), std::make_move_iterator(rest.end()));
    calls.erase(rest.begin(), rest.end());
    commit(std::move(calls));
    for (OutboxEntry& entry : others) put(std::move(entry));
    return std::exchange(uncounted_, 0);
}

void KafkaSink::commit_outbox() { commit(take_outbox()); }

std::vector<OutboxEntry> KafkaSink::take_outbox() {
    outbox_bytes_ = 0;
    return std::exchange(outbox_, {});
}

void KafkaSink::commit(std::vector<OutboxEntry> entries) {
    producer_.wait_all("publishing chunks and statuses");
    for (OutboxEntry& entry : entries) {
        if (broken_streams_.empty() || !entry.completion) continue;
        if (broken_streams_.erase({entry.completion->run.job_id, entry.completion->run.attempt}) == 0) continue;
        turn_into_error(entry, schema::ErrorCode::chunk_too_large,
                        "a chunk of the streamed answer was refused by the broker; ask without stream");
    }
    const std::size_t count = entries.size();
    do {
        auto rejected = committer_->commit(std::move(entries));
        for (RejectedEntry& one : rejected) put_back(std::move(one));
        entries = take_outbox();
    } while (!entries.empty());
    if (count > 0) ++counters_.commits;
    uncounted_ += count;
    counters_.outbox_records = 0;
    counters_.outbox_bytes = 0;
}

void KafkaSink::put_back(RejectedEntry rejected) {
    OutboxEntry& entry = rejected.entry;
    ++counters_.rejected;
    log_warning("{} [{}] offset {}: a record with its result was refused ({}), attempt {}", entry.source.topic, entry.source.partition,
                entry.source.offset, rejected.reason, entry.rejections);
    if (entry.rejections > rejections_max) {
        throw KafkaError(fmt::format("{} [{}] offset {}: its result cannot be published: {}. Check max.message.bytes of {} and {}",
                                     entry.source.topic, entry.source.partition, entry.source.offset, rejected.reason,
                                     options_.topics.results(), options_.topics.dlq()));
    }
    if (entry.rejections == rejections_max && !entry.completion) {
        leave_out_value(entry);
        leave_out_key_and_headers(entry);
    } else if (entry.rejections == rejections_max) {
        turn_into_error(entry, schema::ErrorCode::result_rejected, fmt::format("the broker refused the result: {}", rejected.reason));
    }
    put(std::move(entry));
}

}  // namespace lorry::consumer
