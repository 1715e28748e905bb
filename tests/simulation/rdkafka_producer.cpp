// The producer: records wait for the fiber that sends them; transactions follow librdkafka's states and say with each error whether it is
// retriable, fatal, or requires an abort. See rdkafka.h.
#include <algorithm>
#include <utility>

#include "schema/check.h"
#include "tests/simulation/rdkafka.h"

using namespace lorry::simulation;  // NOLINT: this file implements a C interface over that namespace

namespace lorry::simulation {

namespace {

using State = ProducerSide::State;

constexpr Time linger = millisecond;
constexpr std::size_t batch_records_max = 50;
constexpr int report_share_without_offset = 50;  // one in so many

// Records that were not sent are not sent any more.
void purge(rd_kafka_s& client) {
    ProducerSide& side = client.producer;
    for (const Message& message : std::exchange(side.queue, {})) {
        side.reports.push_back({.place = message.place, .error = RD_KAFKA_RESP_ERR__PURGE_QUEUE, .tag = message.tag});
    }
    client.wake();
}

// Fences are fatal; all else ends this transaction only.
rd_kafka_error_t* fail(rd_kafka_s& client, Error error, bool fatal) {
    ProducerSide& side = client.producer;
    const bool is_fenced = error == RD_KAFKA_RESP_ERR_PRODUCER_FENCED;
    fatal = fatal || is_fenced;
    side.state = fatal ? State::fatal : State::abortable;
    side.error = {.code = error, .text = rd_kafka_err2str(error), .retriable = false, .fatal = fatal, .requires_abort = !fatal};
    if (fatal) client.fatal = side.error;
    purge(client);
    return new rd_kafka_error_s(side.error);
}

void fail_quietly(rd_kafka_s& client, Error error, bool needs_new_epoch) {
    if (client.producer.state != State::ongoing) return;
    client.producer.needs_new_epoch = client.producer.needs_new_epoch || needs_new_epoch;
    rd_kafka_error_destroy(fail(client, error, false));
}

rd_kafka_error_t* timed_out() { return make_error(RD_KAFKA_RESP_ERR__TIMED_OUT, "", true); }

// The error of the batch; its records begin at `first`.
Error send_batch(rd_kafka_s& client, const std::vector<Message>& batch, std::int64_t& first) {
    ProducerSide& side = client.producer;
    Cluster& cluster = client.cluster;
    const bool transactional = !side.id.empty();
    const TopicPartition place = batch.front().place;
    const Time deadline = batch.front().deadline;
    if (transactional) {
        if (side.state != State::ongoing) return RD_KAFKA_RESP_ERR__PURGE_QUEUE;
        if (!side.registered.contains(place)) {
            const Error error = request(client, api_add_partitions, deadline, [&cluster, id = side.id, producer = side.producer, place] {
                return cluster.add_partition(id, producer, place);
            });
            if (error == RD_KAFKA_RESP_ERR__TIMED_OUT) {
                fail_quietly(client, RD_KAFKA_RESP_ERR__MSG_TIMED_OUT, true);
                return RD_KAFKA_RESP_ERR__MSG_TIMED_OUT;
            }
            if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
                fail_quietly(client, error, false);
                return RD_KAFKA_RESP_ERR__PURGE_QUEUE;
            }
            side.registered.insert(place);
        }
    }
    std::vector<Record> records;
    for (const Message& message : batch) records.push_back(message.record);
    const std::uint64_t number = client.number << 32 | side.next_batch++;
    const Error error =
        request(client, api_produce, deadline, [&cluster, id = side.id, producer = side.producer, transactional, place, number, records] {
            return cluster.produce(id, transactional ? &producer : nullptr, place, number, records);
        });
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
        first = cluster.log(place)->batches.at(number);
        return error;
    }
    const bool late = error == RD_KAFKA_RESP_ERR__TIMED_OUT;
    const Error told = late ? RD_KAFKA_RESP_ERR__MSG_TIMED_OUT : error;
    if (transactional) fail_quietly(client, told, late || error == RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH);
    return told;
}

bool is_idle(const ProducerSide& side) { return side.queue.empty() && side.sending == 0; }

bool wait_until_sent(rd_kafka_s& client, Time deadline) {
    while (!is_idle(client.producer)) {
        if (client.machine.now() >= deadline) return false;
        client.machine.wait(&client, deadline);
    }
    return true;
}

void end_locally(ProducerSide& side) {
    side.state = State::idle;
    side.registered.clear();
    side.has_offsets = false;
    side.needs_new_epoch = false;
}

bool wrote_something(const ProducerSide& side) { return !side.registered.empty() || side.has_offsets; }

Offsets offsets_in(const rd_kafka_topic_partition_list_t& list, Plant plant) {
    Offsets offsets;
    for (int i = 0; i < list.cnt; ++i) {
        const rd_kafka_topic_partition_t& one = list.elems[i];
        const std::int64_t more = plant == Plant::offsets_beyond_unfinished ? 1 : 0;
        offsets[one.partition] = {one.offset + more, std::string(static_cast<const char*>(one.metadata), one.metadata_size)};
    }
    return offsets;
}

}  // namespace

void run_sender(rd_kafka_s& client) {
    ProducerSide& side = client.producer;
    for (;;) {
        while (side.queue.empty()) client.machine.wait(&side, never);
        client.machine.sleep_for(linger);
        if (side.queue.empty()) continue;
        std::vector<Message> batch;
        const TopicPartition place = side.queue.front().place;
        std::erase_if(side.queue, [&](Message& message) {
            if (message.place != place || batch.size() >= batch_records_max) return false;
            batch.push_back(std::move(message));
            return true;
        });
        side.sending = batch.size();
        std::int64_t first = -1;
        const Error error = send_batch(client, batch, first);
        side.sending = 0;
        for (std::size_t i = 0; i < batch.size(); ++i) {
            const bool knows_offset = error == RD_KAFKA_RESP_ERR_NO_ERROR && client.machine.draw(1, report_share_without_offset) > 1;
            side.reports.push_back({.place = place,
                                    .error = error,
                                    .offset = knows_offset ? first + static_cast<std::int64_t>(i) : RD_KAFKA_OFFSET_INVALID,
                                    .tag = batch[i].tag});
        }
        client.wake();
    }
}

std::size_t serve_reports(rd_kafka_s& client) {
    std::size_t count = 0;
    for (const Report& report : std::exchange(client.producer.reports, {})) {
        rd_kafka_message_t message{};
        message.err = report.error;
        message.rkt = client.topic(report.place.first);
        message.partition = report.place.second;
        message.offset = report.offset;
        message._private = report.tag;
        if (client.conf.on_report != nullptr) client.conf.on_report(&client, &message, client.conf.opaque);
        ++count;
    }
    return count;
}

}  // namespace lorry::simulation

extern "C" {

rd_kafka_error_t* rd_kafka_produceva(rd_kafka_t* client, const rd_kafka_vu_t* arguments, size_t count) {
    ProducerSide& side = client->producer;
    if (!side.id.empty() && side.state != State::ongoing) return make_error(RD_KAFKA_RESP_ERR__STATE, "");
    Message message{.place = {{}, RD_KAFKA_PARTITION_UA}};
    for (std::size_t i = 0; i < count; ++i) {
        const auto& value = arguments[i].u;
        const auto bytes = [&] { return std::string(static_cast<const char*>(value.mem.ptr), value.mem.size); };
        switch (arguments[i].vtype) {
            case RD_KAFKA_VTYPE_TOPIC: message.place.first = value.cstr; break;
            case RD_KAFKA_VTYPE_PARTITION: message.place.second = value.i32; break;
            case RD_KAFKA_VTYPE_KEY: message.record.key = bytes(); break;
            case RD_KAFKA_VTYPE_VALUE: message.record.value = bytes(); break;
            case RD_KAFKA_VTYPE_OPAQUE: message.tag = value.ptr; break;
            case RD_KAFKA_VTYPE_HEADERS:
                message.record.headers = std::move(value.headers->list);
                rd_kafka_headers_destroy(value.headers);
                break;
            default: break;
        }
    }
    const auto* logs = client->cluster.find(message.place.first);
    if (logs == nullptr) return make_error(RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC, "");
    if (message.place.second == RD_KAFKA_PARTITION_UA) {
        std::uint64_t hash = 14695981039346656037u;  // FNV-1a
        for (const char one : message.record.key.value_or("")) hash = (hash ^ static_cast<unsigned char>(one)) * 1099511628211u;
        message.place.second = static_cast<std::int32_t>(hash % logs->size());
    }
    message.deadline = client->machine.now() + client->duration("message.timeout.ms");
    side.queue.push_back(std::move(message));
    client->machine.wake(&side);
    return nullptr;
}

rd_kafka_resp_err_t rd_kafka_flush(rd_kafka_t* client, int timeout_ms) {
    const Time deadline = deadline_in(*client, timeout_ms);
    for (;;) {
        serve_reports(*client);
        if (is_idle(client->producer)) return RD_KAFKA_RESP_ERR_NO_ERROR;
        if (client->machine.now() >= deadline) return RD_KAFKA_RESP_ERR__TIMED_OUT;
        client->machine.wait(client, deadline);
    }
}

rd_kafka_error_t* rd_kafka_init_transactions(rd_kafka_t* client, int timeout_ms) {
    ProducerSide& side = client->producer;
    Cluster& cluster = client->cluster;
    const Time timeout = client->duration("transaction.timeout.ms");
    const Error error = request(*client, api_init_producer, deadline_in(*client, timeout_ms),
                                [&cluster, id = side.id, timeout] { return cluster.init_producer(id, timeout, std::nullopt); });
    if (error == RD_KAFKA_RESP_ERR__TIMED_OUT) return timed_out();
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return make_error(error, "", false, true);
    side.producer = cluster.producer_of(side.id);
    return nullptr;
}

rd_kafka_error_t* rd_kafka_begin_transaction(rd_kafka_t* client) {
    ProducerSide& side = client->producer;
    if (side.state == State::fatal) return new rd_kafka_error_s(side.error);
    CHECK(side.state == State::idle, "a transaction begins after the one before has ended");
    side.state = State::ongoing;
    return nullptr;
}

rd_kafka_error_t* rd_kafka_send_offsets_to_transaction(rd_kafka_t* client, const rd_kafka_topic_partition_list_t* list,
                                                       const rd_kafka_consumer_group_metadata_t* group, int timeout_ms) {
    ProducerSide& side = client->producer;
    Cluster& cluster = client->cluster;
    if (side.state != State::ongoing) return new rd_kafka_error_s(side.error);
    const Time deadline = deadline_in(*client, timeout_ms);
    Error error = RD_KAFKA_RESP_ERR_NO_ERROR;
    if (!side.has_offsets) {
        error = request(*client, api_add_offsets, deadline,
                        [&cluster, id = side.id, producer = side.producer] { return cluster.add_offsets(id, producer); });
        side.has_offsets = error == RD_KAFKA_RESP_ERR_NO_ERROR;
    }
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
        error = request(*client, api_commit_offsets, deadline,
                        [&cluster, id = side.id, producer = side.producer, sender = group->sender,
                         offsets = offsets_in(*list, cluster.plant)] { return cluster.commit_offsets(id, producer, sender, offsets); });
    }
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return nullptr;
    return error == RD_KAFKA_RESP_ERR__TIMED_OUT ? timed_out() : fail(*client, error, false);
}

rd_kafka_error_t* rd_kafka_commit_transaction(rd_kafka_t* client, int timeout_ms) {
    ProducerSide& side = client->producer;
    Cluster& cluster = client->cluster;
    const bool gives_up = cluster.plant == Plant::unknown_end_is_abort;
    const Time deadline = gives_up ? client->machine.now() + 100 * millisecond : deadline_in(*client, timeout_ms);
    if (!wait_until_sent(*client, deadline)) return timed_out();
    if (side.state != State::ongoing) return new rd_kafka_error_s(side.error);
    if (wrote_something(side)) {
        const Error error = request(*client, api_end_transaction, deadline,
                                    [&cluster, id = side.id, producer = side.producer] { return cluster.end(id, producer, true); });
        if (error == RD_KAFKA_RESP_ERR__TIMED_OUT && gives_up) {
            side.registered.clear();
            side.has_offsets = false;
            return fail(*client, RD_KAFKA_RESP_ERR_TRANSACTION_ABORTABLE, false);
        }
        if (error == RD_KAFKA_RESP_ERR__TIMED_OUT) return timed_out();
        const bool is_refused = error != RD_KAFKA_RESP_ERR_NO_ERROR && cluster.plant != Plant::refused_end_is_commit;
        if (is_refused) return fail(*client, error, error == RD_KAFKA_RESP_ERR_INVALID_TXN_STATE);
    }
    end_locally(side);
    return nullptr;
}

rd_kafka_error_t* rd_kafka_abort_transaction(rd_kafka_t* client, int timeout_ms) {
    ProducerSide& side = client->producer;
    Cluster& cluster = client->cluster;
    if (side.state == State::fatal) return new rd_kafka_error_s(side.error);
    const Time deadline = deadline_in(*client, timeout_ms);
    purge(*client);
    if (!wait_until_sent(*client, deadline)) return timed_out();
    Error error = RD_KAFKA_RESP_ERR_NO_ERROR;
    if (side.needs_new_epoch) {
        const Time timeout = client->duration("transaction.timeout.ms");
        error = request(*client, api_init_producer, deadline,
                        [&cluster, id = side.id, timeout, last = side.producer] { return cluster.init_producer(id, timeout, last); });
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR) side.producer = cluster.producer_of(side.id);
    } else if (wrote_something(side)) {
        error = request(*client, api_end_transaction, deadline,
                        [&cluster, id = side.id, producer = side.producer] { return cluster.end(id, producer, false); });
    }
    if (error == RD_KAFKA_RESP_ERR__TIMED_OUT) return timed_out();
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return fail(*client, error, true);
    end_locally(side);
    return nullptr;
}

}  // extern "C"
