// The consumer: reading by assignment, and a group member with its fiber for joins and heartbeats. Rebalances are reported from
// rd_kafka_consumer_poll and answered by the next incremental assign or unassign; the member joins again only after the answer. See
// rdkafka.h.
#include <algorithm>
#include <utility>

#include "schema/check.h"
#include "tests/simulation/rdkafka.h"

using namespace lorry::simulation;  // NOLINT: this file implements a C interface over that namespace

namespace lorry::simulation {

namespace {

// A fetched record, with what the public structure points at.
struct Fetched : rd_kafka_message_s {
    Record record;
    Time time = 0;
    rd_kafka_headers_s headers;
};

std::vector<std::int32_t> without(const std::vector<std::int32_t>& all, const std::vector<std::int32_t>& left_out) {
    std::vector<std::int32_t> rest;
    const auto stays = [&](std::int32_t one) { return std::ranges::find(left_out, one) == left_out.end(); };
    std::ranges::copy_if(all, std::back_inserter(rest), stays);
    return rest;
}

bool holds_ends(const Cluster& cluster, const std::string& topic) {
    const std::string prefix = cluster.jobs_topic().substr(0, cluster.jobs_topic().rfind('.'));
    return topic == prefix + ".results" || topic == prefix + ".dlq";
}

rd_kafka_message_t* make_message(rd_kafka_s& client, const TopicPartition& place, std::int64_t offset, const Entry& entry) {
    auto* message = new Fetched{};
    message->rkt = client.topic(place.first);
    message->partition = place.second;
    message->offset = offset;
    message->record = entry.record;
    message->time = entry.time;
    message->headers.list = entry.record.headers;
    if (message->record.key) {
        message->key = message->record.key->data();
        message->key_len = message->record.key->size();
    }
    if (message->record.value) {
        message->payload = message->record.value->data();
        message->len = message->record.value->size();
    }
    return message;
}

// The next record that this client may see, or the report that there is none; nullptr: that was reported already.
rd_kafka_message_t* next_message(rd_kafka_s& client, const TopicPartition& place, Reading& reading) {
    const Log* log = client.cluster.log(place);
    if (log == nullptr || client.cluster.is_down()) return nullptr;
    const ConsumerSide& side = client.consumer;
    const std::int64_t end = side.sees_uncommitted ? log->end() : log->stable_end();
    const bool is_end_topic = holds_ends(client.cluster, place.first);
    const bool sees_aborted = side.sees_uncommitted || (client.cluster.plant == Plant::aborted_results_count && is_end_topic);
    while (reading.position < end) {
        const std::int64_t offset = reading.position++;
        const Entry& entry = log->entries[static_cast<std::size_t>(offset)];
        if (entry.fate == Entry::Fate::marker || (entry.fate == Entry::Fate::aborted && !sees_aborted)) continue;
        if (client.cluster.plant == Plant::results_unread && is_end_topic && offset + 2 >= end) continue;
        return make_message(client, place, offset, entry);
    }
    if (client.setting("enable.partition.eof", "false") != "true" || reading.end_told == reading.position) return nullptr;
    reading.end_told = reading.position;
    auto* message = make_message(client, place, reading.position, {});
    message->err = RD_KAFKA_RESP_ERR__PARTITION_EOF;
    return message;
}

Cluster::Sender sender_of(const rd_kafka_s& client) {
    const ConsumerSide& side = client.consumer;
    return {.instance = side.instance, .member = side.member, .generation = side.generation};
}

void cross(rd_kafka_s& client) {
    Machine& machine = client.machine;
    while (client.cluster.is_down()) machine.sleep_for(client.cluster.down_until - machine.now());
    machine.sleep_for(machine.draw(50 * microsecond, 2 * millisecond));
}

// The keeper's calls. One heartbeat; false when the group does not know this member any more, or when another one has its name.
bool beat(rd_kafka_s& client) {
    cross(client);
    switch (client.cluster.heartbeat(sender_of(client))) {
        case RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID:
            client.fatal = rd_kafka_error_s{.code = RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID, .text = "fenced", .fatal = true};
            return false;
        case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID:
        case RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION: return false;
        default: return true;
    }
}

// Reports a change and waits for the answer; the heart beats on. False: the group has lost this member meanwhile.
bool report(rd_kafka_s& client, bool assign, std::vector<std::int32_t> partitions) {
    ConsumerSide& side = client.consumer;
    side.rebalance = {.assign = assign, .partitions = std::move(partitions)};
    side.is_reported = false;
    client.wake();
    bool known = true;
    while (side.rebalance) {
        client.machine.wait(&side, client.machine.now() + client.duration("heartbeat.interval.ms"));
        if (!known || !side.rebalance || side.member.empty()) continue;
        known = beat(client);
        if (!known) side.is_lost = true;
    }
    return known;
}

void lose(rd_kafka_s& client) {
    ConsumerSide& side = client.consumer;
    side.member.clear();
    side.generation = -1;
    side.is_lost = true;
    if (!side.owned.empty()) report(client, false, side.owned);
    side.is_lost = false;
}

// Joins and waits for the generation that follows; nullopt: to be tried again.
std::optional<Generation> join(rd_kafka_s& client) {
    ConsumerSide& side = client.consumer;
    cross(client);
    const Error error = client.cluster.join(side.instance, side.member, side.owned, client.duration("session.timeout.ms"));
    if (error == RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID) {
        client.fatal = rd_kafka_error_s{.code = error, .text = "fenced", .fatal = true};
    }
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return std::nullopt;
    for (;;) {
        if (!client.cluster.is_member(side.instance, side.member)) return std::nullopt;
        if (const auto generation = client.cluster.generation_of(side.instance, side.member)) {
            cross(client);
            return generation;
        }
        client.machine.wait(client.cluster.group_news(), client.machine.now() + second / 2);
    }
}

// Applies a generation: partitions to give up come first, and the member joins again without them. False: lost.
bool take_generation(rd_kafka_s& client, const Generation& generation, bool& joins_again) {
    ConsumerSide& side = client.consumer;
    side.generation = generation.number;
    const auto revoked = without(side.owned, generation.assigned);
    const auto added = without(generation.assigned, side.owned);
    joins_again = !revoked.empty();
    return joins_again ? report(client, false, revoked) : report(client, true, added);
}

}  // namespace

void run_keeper(rd_kafka_s& client) {
    ConsumerSide& side = client.consumer;
    // A static member's first assignment may be an old one, so it is followed by a rebalance (ops/librdkafka.patch).
    bool is_first = client.cluster.plant != Plant::old_assignment_kept;
    while (!client.fatal) {
        const auto generation = join(client);
        bool joins_again = false;
        if (!generation || !take_generation(client, *generation, joins_again)) {
            lose(client);
            continue;
        }
        joins_again = std::exchange(is_first, false) || joins_again;
        while (!joins_again) {
            client.machine.sleep_for(client.duration("heartbeat.interval.ms"));
            if (!beat(client)) {
                lose(client);
                break;
            }
            joins_again = !client.cluster.generation_of(side.instance, side.member);
        }
    }
    client.wake();
}

}  // namespace lorry::simulation

extern "C" {

rd_kafka_resp_err_t rd_kafka_poll_set_consumer(rd_kafka_t*) { return RD_KAFKA_RESP_ERR_NO_ERROR; }

rd_kafka_resp_err_t rd_kafka_subscribe(rd_kafka_t* client, const rd_kafka_topic_partition_list_t*) {
    client->consumer.subscribed = true;
    client->consumer.keeper = client->machine.start(client->process, [client] { run_keeper(*client); });
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

rd_kafka_message_t* rd_kafka_consumer_poll(rd_kafka_t* client, int timeout_ms) {
    const Time deadline = deadline_in(*client, timeout_ms);
    ConsumerSide& side = client->consumer;
    rd_kafka_poll(client, 0);
    for (;;) {
        if (side.rebalance && !side.is_reported) {
            side.is_reported = true;
            const auto kind = side.rebalance->assign ? RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS : RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS;
            auto* list = list_of(client->cluster.jobs_topic(), side.rebalance->partitions);
            client->conf.on_rebalance(client, kind, list, client->conf.opaque);
            rd_kafka_topic_partition_list_destroy(list);
            return nullptr;
        }
        if (std::exchange(client->is_woken, false) || client->machine.now() >= deadline) return nullptr;
        client->machine.wait(client, deadline);
    }
}

void rd_kafka_yield(rd_kafka_t*) {}

rd_kafka_error_t* rd_kafka_incremental_assign(rd_kafka_t* client, const rd_kafka_topic_partition_list_t* list) {
    ConsumerSide& side = client->consumer;
    for (int i = 0; i < list->cnt; ++i) {
        const rd_kafka_topic_partition_t& one = list->elems[i];
        side.readings[{one.topic, one.partition}] = {.position = one.offset, .queue = nullptr, .end_told = {}};
    }
    if (side.rebalance && side.is_reported && side.rebalance->assign) {
        side.owned.insert(side.owned.end(), side.rebalance->partitions.begin(), side.rebalance->partitions.end());
        side.rebalance.reset();
        client->machine.wake(&side);
    }
    client->wake();
    return nullptr;
}

rd_kafka_error_t* rd_kafka_incremental_unassign(rd_kafka_t* client, const rd_kafka_topic_partition_list_t* list) {
    ConsumerSide& side = client->consumer;
    for (int i = 0; i < list->cnt; ++i) side.readings.erase({list->elems[i].topic, list->elems[i].partition});
    if (side.rebalance && side.is_reported && !side.rebalance->assign) {
        side.owned = without(side.owned, side.rebalance->partitions);
        side.rebalance.reset();
        client->machine.wake(&side);
    }
    return nullptr;
}

rd_kafka_resp_err_t rd_kafka_assign(rd_kafka_t*, const rd_kafka_topic_partition_list_t*) { return RD_KAFKA_RESP_ERR_NO_ERROR; }

rd_kafka_resp_err_t rd_kafka_assignment(rd_kafka_t* client, rd_kafka_topic_partition_list_t** list) {
    *list = rd_kafka_topic_partition_list_new(0);
    for (const auto& [place, reading] : client->consumer.readings) {
        rd_kafka_topic_partition_list_add(*list, place.first.c_str(), place.second)->offset = reading.position;
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

int rd_kafka_assignment_lost(rd_kafka_t* client) { return client->consumer.is_lost ? 1 : 0; }

// A static member does not say that it leaves.
rd_kafka_resp_err_t rd_kafka_consumer_close(rd_kafka_t* client) {
    ConsumerSide& side = client->consumer;
    side.closed = true;
    if (side.keeper != nullptr) client->machine.remove(std::exchange(side.keeper, nullptr));
    side.rebalance = ConsumerSide::Rebalance{.assign = false, .partitions = side.owned};
    side.is_reported = false;
    rd_kafka_message_t* message = rd_kafka_consumer_poll(client, 0);
    CHECK(message == nullptr, "a close reports nothing but the last rebalance");
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}
int rd_kafka_consumer_closed(rd_kafka_t* client) { return client->consumer.closed ? 1 : 0; }

rd_kafka_consumer_group_metadata_t* rd_kafka_consumer_group_metadata(rd_kafka_t* client) {
    return new rd_kafka_consumer_group_metadata_s{sender_of(*client)};
}
void rd_kafka_consumer_group_metadata_destroy(rd_kafka_consumer_group_metadata_t* group) { delete group; }

rd_kafka_queue_t* rd_kafka_queue_new(rd_kafka_t* client) { return new rd_kafka_queue_s{.client = client}; }
rd_kafka_queue_t* rd_kafka_queue_get_consumer(rd_kafka_t* client) { return new rd_kafka_queue_s{.client = client}; }
rd_kafka_queue_t* rd_kafka_queue_get_partition(rd_kafka_t* client, const char* topic, int32_t partition) {
    return new rd_kafka_queue_s{.client = client, .place = TopicPartition(topic, partition)};
}
void rd_kafka_queue_destroy(rd_kafka_queue_t* queue) {
    for (rd_kafka_event_t* event : queue->events) rd_kafka_event_destroy(event);
    delete queue;
}
void rd_kafka_queue_forward(rd_kafka_queue_t*, rd_kafka_queue_t*) {}
void rd_kafka_queue_cb_event_enable(rd_kafka_queue_t*, void (*)(rd_kafka_t*, void*), void*) {}  // each record wakes the poll anyway
void rd_kafka_queue_yield(rd_kafka_queue_t*) {}

rd_kafka_message_t* rd_kafka_consume_queue(rd_kafka_queue_t* queue, int timeout_ms) {
    rd_kafka_s& client = *queue->client;
    const Time deadline = deadline_in(client, timeout_ms);
    for (;;) {
        for (auto& [place, reading] : client.consumer.readings) {
            if (queue->place ? *queue->place != place : reading.queue != queue) continue;
            if (rd_kafka_message_t* message = next_message(client, place, reading)) return message;
        }
        if (client.machine.now() >= deadline) return nullptr;
        client.machine.wait(&client, deadline);
    }
}
int rd_kafka_consume_start_queue(rd_kafka_topic_t* topic, int32_t partition, int64_t offset, rd_kafka_queue_t* queue) {
    queue->client->consumer.readings[{topic->name, partition}] = {.position = offset, .queue = queue, .end_told = {}};
    return 0;
}
int rd_kafka_consume_stop(rd_kafka_topic_t* topic, int32_t partition) {
    topic->client->consumer.readings.erase({topic->name, partition});
    return 0;
}

void rd_kafka_message_destroy(rd_kafka_message_t* message) { delete static_cast<Fetched*>(message); }
const char* rd_kafka_message_errstr(const rd_kafka_message_t* message) { return rd_kafka_err2str(message->err); }
int64_t rd_kafka_message_timestamp(const rd_kafka_message_t* message, rd_kafka_timestamp_type_t* type) {
    *type = RD_KAFKA_TIMESTAMP_CREATE_TIME;
    return (wall_offset + static_cast<const Fetched*>(message)->time) / millisecond;
}
rd_kafka_resp_err_t rd_kafka_message_headers(const rd_kafka_message_t* message, rd_kafka_headers_t** headers) {
    *headers = &const_cast<Fetched*>(static_cast<const Fetched*>(message))->headers;  // NOLINT: the interface is not const
    return (*headers)->list.empty() ? RD_KAFKA_RESP_ERR__NOENT : RD_KAFKA_RESP_ERR_NO_ERROR;
}

}  // extern "C"
