// The client as such: settings, errors, lists, records, requests and their misfortunes. See rdkafka.h.
#include "tests/simulation/rdkafka.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

#include "schema/check.h"

using namespace lorry::simulation;  // NOLINT: this file implements a C interface over that namespace

namespace lorry::simulation {

namespace {

constexpr Time fastest = 50 * microsecond;  // of a request or its answer
constexpr Time usual = millisecond;
constexpr Time retry_backoff = 5 * millisecond;
constexpr Time late_most = 4 * second;  // a copy of a lost request arrives within this time

void copy_text(const std::string& text, char* place, std::size_t size) {
    if (place == nullptr || size == 0) return;
    const std::size_t count = std::min(size - 1, text.size());
    std::copy_n(text.data(), count, place);
    place[count] = '\0';
}

}  // namespace

std::vector<rd_kafka_s*>& clients() {
    static std::vector<rd_kafka_s*> list;
    return list;
}

Time deadline_in(const rd_kafka_s& client, int timeout_ms) {
    return timeout_ms < 0 ? never : client.machine.now() + timeout_ms * millisecond;
}

bool is_retriable(Error error) {
    switch (error) {
        case RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS:
        case RD_KAFKA_RESP_ERR_NOT_COORDINATOR:
        case RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE:
        case RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS: return true;
        default: return false;
    }
}

void tell_response(rd_kafka_s& client, std::int16_t api, Error error) {
    if (client.cluster.plant == Plant::stray_requests_unnoticed) error = RD_KAFKA_RESP_ERR_NO_ERROR;
    for (const auto& [call, opaque] : client.on_response) call(&client, 0, "broker", 1, api, 0, 0, 0, 0, error, opaque);
}

void lose_connection(rd_kafka_s& client) {
    if (client.cluster.plant == Plant::stray_requests_unnoticed) return;
    for (const char* state : {"DOWN", "UP"}) {
        for (const auto& [call, opaque] : client.on_broker_state) call(&client, 1, "plaintext", "broker", 9092, state, opaque);
    }
}

Error request(rd_kafka_s& client, std::int16_t api, Time deadline, const std::function<Error()>& apply) {
    Machine& machine = client.machine;
    Cluster& cluster = client.cluster;
    for (;;) {
        if (machine.now() >= deadline) return RD_KAFKA_RESP_ERR__TIMED_OUT;
        if (cluster.is_down()) {
            machine.sleep_for(std::min(deadline, cluster.down_until) - machine.now());
            continue;
        }
        const Weather& weather = cluster.weather;
        const Time way = machine.chance(weather.slow) ? machine.draw(0, weather.slowest) : machine.draw(fastest, usual);
        for (const auto& [call, opaque] : client.on_sent) call(&client, 0, "broker", 1, api, 0, 0, 0, opaque);
        if (machine.chance(weather.lost_request)) {
            if (machine.chance(0.5)) machine.at(machine.now() + machine.draw(0, late_most), world, [apply] { apply(); });
            machine.sleep_for(std::min(way, deadline - machine.now()));
            tell_response(client, api, RD_KAFKA_RESP_ERR__TRANSPORT);
            lose_connection(client);
            machine.sleep_for(retry_backoff);
            continue;
        }
        if (machine.now() + way > deadline) {
            machine.at(machine.now() + way, world, [apply] { apply(); });
            machine.sleep_for(deadline - machine.now());
            tell_response(client, api, RD_KAFKA_RESP_ERR__TIMED_OUT);
            return RD_KAFKA_RESP_ERR__TIMED_OUT;
        }
        machine.sleep_for(way);
        if (cluster.is_down()) {
            tell_response(client, api, RD_KAFKA_RESP_ERR__TRANSPORT);
            continue;
        }
        const Error error = machine.chance(weather.refused) ? RD_KAFKA_RESP_ERR_NOT_COORDINATOR : apply();
        if (machine.chance(weather.lost_reply)) {
            tell_response(client, api, RD_KAFKA_RESP_ERR__TRANSPORT);
            lose_connection(client);
            machine.sleep_for(retry_backoff);
            continue;
        }
        machine.sleep_for(machine.draw(fastest, usual));
        tell_response(client, api, error);
        if (!is_retriable(error)) return error;
        machine.sleep_for(retry_backoff);
    }
}

rd_kafka_error_t* make_error(Error code, const std::string& text, bool retriable, bool fatal, bool requires_abort) {
    return new rd_kafka_error_s{code, text.empty() ? rd_kafka_err2str(code) : text, retriable, fatal, requires_abort};
}

rd_kafka_topic_partition_list_t* list_of(const std::string& topic, const std::vector<std::int32_t>& partitions) {
    auto* list = rd_kafka_topic_partition_list_new(static_cast<int>(partitions.size()));
    for (const std::int32_t partition : partitions) rd_kafka_topic_partition_list_add(list, topic.c_str(), partition);
    return list;
}

}  // namespace lorry::simulation

rd_kafka_topic_s* rd_kafka_s::topic(const std::string& name) {
    return &topics.try_emplace(name, rd_kafka_topic_s{this, name}).first->second;
}

std::string rd_kafka_s::setting(const std::string& name, const std::string& otherwise) const {
    const auto found = conf.values.find(name);
    return found == conf.values.end() ? otherwise : found->second;
}

Time rd_kafka_s::duration(const std::string& name) const {
    const std::string text = setting(name, "");
    Time value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    CHECK(error == std::errc() && end == text.data() + text.size(), "the setting is a number");
    return value * millisecond;
}

void rd_kafka_s::wake() {
    is_woken = true;
    machine.wake(this);
}

extern "C" {

const char* rd_kafka_err2name(rd_kafka_resp_err_t error) {
    switch (error) {
        case RD_KAFKA_RESP_ERR_NO_ERROR: return "NO_ERROR";
        case RD_KAFKA_RESP_ERR__TIMED_OUT: return "_TIMED_OUT";
        case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT: return "_MSG_TIMED_OUT";
        case RD_KAFKA_RESP_ERR__TRANSPORT: return "_TRANSPORT";
        case RD_KAFKA_RESP_ERR__FENCED: return "_FENCED";
        case RD_KAFKA_RESP_ERR__PURGE_QUEUE: return "_PURGE_QUEUE";
        case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN: return "_ALL_BROKERS_DOWN";
        case RD_KAFKA_RESP_ERR_PRODUCER_FENCED: return "PRODUCER_FENCED";
        case RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH: return "INVALID_PRODUCER_EPOCH";
        case RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING: return "INVALID_PRODUCER_ID_MAPPING";
        case RD_KAFKA_RESP_ERR_INVALID_TXN_STATE: return "INVALID_TXN_STATE";
        case RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS: return "CONCURRENT_TRANSACTIONS";
        case RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION: return "ILLEGAL_GENERATION";
        case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID: return "UNKNOWN_MEMBER_ID";
        case RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID: return "FENCED_INSTANCE_ID";
        case RD_KAFKA_RESP_ERR_NOT_COORDINATOR: return "NOT_COORDINATOR";
        case RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT: return "UNSTABLE_OFFSET_COMMIT";
        default: return "another error";
    }
}
const char* rd_kafka_err2str(rd_kafka_resp_err_t error) { return rd_kafka_err2name(error); }

rd_kafka_error_t* rd_kafka_error_new(rd_kafka_resp_err_t code, const char* format, ...) {
    CHECK(std::string_view(format) == "%s", "one text");
    va_list list;
    va_start(list, format);
    const char* text = va_arg(list, const char*);
    va_end(list);
    return make_error(code, text);
}
void rd_kafka_error_destroy(rd_kafka_error_t* error) { delete error; }
rd_kafka_resp_err_t rd_kafka_error_code(const rd_kafka_error_t* error) {
    return error == nullptr ? RD_KAFKA_RESP_ERR_NO_ERROR : error->code;
}
const char* rd_kafka_error_string(const rd_kafka_error_t* error) { return error->text.c_str(); }
int rd_kafka_error_is_fatal(const rd_kafka_error_t* error) { return error->fatal ? 1 : 0; }
int rd_kafka_error_is_retriable(const rd_kafka_error_t* error) { return error->retriable ? 1 : 0; }
int rd_kafka_error_txn_requires_abort(const rd_kafka_error_t* error) { return error->requires_abort ? 1 : 0; }

rd_kafka_conf_t* rd_kafka_conf_new() { return new rd_kafka_conf_s; }
void rd_kafka_conf_destroy(rd_kafka_conf_t* conf) { delete conf; }
rd_kafka_conf_res_t rd_kafka_conf_set(rd_kafka_conf_t* conf, const char* name, const char* value, char*, size_t) {
    conf->values[name] = value;
    return RD_KAFKA_CONF_OK;
}
rd_kafka_conf_res_t rd_kafka_conf_get(const rd_kafka_conf_t* conf, const char* name, char* place, size_t* size) {
    const auto found = conf->values.find(name);
    if (found == conf->values.end()) return RD_KAFKA_CONF_UNKNOWN;
    if (place != nullptr) copy_text(found->second, place, *size + 1);
    *size = found->second.size();
    return RD_KAFKA_CONF_OK;
}
void rd_kafka_conf_set_opaque(rd_kafka_conf_t* conf, void* opaque) { conf->opaque = opaque; }
void rd_kafka_conf_set_log_cb(rd_kafka_conf_t* conf, void (*call)(const rd_kafka_t*, int, const char*, const char*)) {
    conf->on_log = call;
}
void rd_kafka_conf_set_error_cb(rd_kafka_conf_t* conf, void (*call)(rd_kafka_t*, int, const char*, void*)) { conf->on_error = call; }
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t* conf, void (*call)(rd_kafka_t*, const rd_kafka_message_t*, void*)) {
    conf->on_report = call;
}
void rd_kafka_conf_set_rebalance_cb(rd_kafka_conf_t* conf,
                                    void (*call)(rd_kafka_t*, rd_kafka_resp_err_t, rd_kafka_topic_partition_list_t*, void*)) {
    conf->on_rebalance = call;
}
rd_kafka_resp_err_t rd_kafka_conf_interceptor_add_on_new(rd_kafka_conf_t* conf, const char*, rd_kafka_interceptor_f_on_new_t* call,
                                                         void* opaque) {
    conf->on_new.emplace_back(call, opaque);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}
rd_kafka_resp_err_t rd_kafka_interceptor_add_on_request_sent(rd_kafka_t* client, const char*,
                                                             rd_kafka_interceptor_f_on_request_sent_t* call, void* opaque) {
    client->on_sent.emplace_back(call, opaque);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}
rd_kafka_resp_err_t rd_kafka_interceptor_add_on_response_received(rd_kafka_t* client, const char*,
                                                                  rd_kafka_interceptor_f_on_response_received_t* call, void* opaque) {
    client->on_response.emplace_back(call, opaque);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}
rd_kafka_resp_err_t rd_kafka_interceptor_add_on_broker_state_change(rd_kafka_t* client, const char*,
                                                                    rd_kafka_interceptor_f_on_broker_state_change_t* call, void* opaque) {
    client->on_broker_state.emplace_back(call, opaque);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

rd_kafka_t* rd_kafka_new(rd_kafka_type_t type, rd_kafka_conf_t* conf, char*, size_t) {
    static std::uint64_t last_number = 0;
    auto* client = new rd_kafka_s{.conf = std::move(*conf), .type = type};
    delete conf;
    client->number = ++last_number;
    for (const auto& [call, opaque] : client->conf.on_new) call(client, &client->conf, opaque, nullptr, 0);
    lose_connection(*client);  // the interceptors learn of the broker
    if (type == RD_KAFKA_PRODUCER) {
        client->producer.id = client->setting("transactional.id", "");
        client->producer.sender = client->machine.start(client->process, [client] { run_sender(*client); });
    } else {
        client->consumer.sees_uncommitted = client->setting("isolation.level", "read_committed") == "read_uncommitted";
        client->consumer.instance = client->setting("group.instance.id", "");
    }
    clients().push_back(client);
    return client;
}
void rd_kafka_destroy_flags(rd_kafka_t* client, int) {
    for (auto* fiber : {client->producer.sender, client->consumer.keeper}) {
        if (fiber != nullptr) client->machine.remove(fiber);
    }
    std::erase(clients(), client);
    delete client;
}
const rd_kafka_conf_t* rd_kafka_conf(rd_kafka_t* client) { return &client->conf; }
void* rd_kafka_opaque(const rd_kafka_t* client) { return client->conf.opaque; }
rd_kafka_resp_err_t rd_kafka_fatal_error(rd_kafka_t* client, char* text, size_t size) {
    if (!client->fatal) return RD_KAFKA_RESP_ERR_NO_ERROR;
    copy_text(client->fatal->text, text, size);
    return client->fatal->code;
}
char* rd_kafka_clusterid(rd_kafka_t*, int) {
    constexpr std::string_view id = "simulated";
    auto* text = static_cast<char*>(std::calloc(id.size() + 1, 1));
    std::copy(id.begin(), id.end(), text);
    return text;
}
void* rd_kafka_mem_malloc(rd_kafka_t*, size_t size) { return std::malloc(size); }
void rd_kafka_mem_free(rd_kafka_t*, void* memory) { std::free(memory); }
rd_kafka_resp_err_t rd_kafka_last_error() { return RD_KAFKA_RESP_ERR_NO_ERROR; }

// Reports go to the caller, as does the news that no broker can be reached.
int rd_kafka_poll(rd_kafka_t* client, int timeout_ms) {
    const Time deadline = deadline_in(*client, timeout_ms);
    if (client->cluster.is_down() && !std::exchange(client->told_down, true) && client->conf.on_error != nullptr) {
        client->conf.on_error(client, RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, "all brokers are down", client->conf.opaque);
    }
    if (!client->cluster.is_down()) client->told_down = false;
    for (;;) {
        const std::size_t served = serve_reports(*client);
        if (served > 0 || client->machine.now() >= deadline) return static_cast<int>(served);
        client->machine.wait(client, deadline);
    }
}

rd_kafka_topic_t* rd_kafka_topic_new(rd_kafka_t* client, const char* name, rd_kafka_topic_conf_t*) { return client->topic(name); }
void rd_kafka_topic_destroy(rd_kafka_topic_t*) {}
const char* rd_kafka_topic_name(const rd_kafka_topic_t* topic) { return topic->name.c_str(); }

rd_kafka_topic_partition_list_t* rd_kafka_topic_partition_list_new(int size) {
    auto* list = static_cast<rd_kafka_topic_partition_list_t*>(std::calloc(1, sizeof(rd_kafka_topic_partition_list_t)));
    list->size = std::max(size, 4);
    list->elems = static_cast<rd_kafka_topic_partition_t*>(std::calloc(static_cast<std::size_t>(list->size), sizeof(*list->elems)));
    return list;
}
void rd_kafka_topic_partition_list_destroy(rd_kafka_topic_partition_list_t* list) {
    for (int i = 0; i < list->cnt; ++i) {
        std::free(list->elems[i].topic);
        std::free(list->elems[i].metadata);
    }
    std::free(list->elems);
    std::free(list);
}
rd_kafka_topic_partition_t* rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t* list, const char* topic, int32_t partition) {
    if (list->cnt == list->size) {
        list->size *= 2;
        list->elems = static_cast<rd_kafka_topic_partition_t*>(
            std::realloc(list->elems, static_cast<std::size_t>(list->size) * sizeof(rd_kafka_topic_partition_t)));
    }
    rd_kafka_topic_partition_t* place = &list->elems[list->cnt++];
    *place = {};
    place->topic = strdup(topic);
    place->partition = partition;
    place->offset = RD_KAFKA_OFFSET_INVALID;
    return place;
}
rd_kafka_topic_partition_t* rd_kafka_topic_partition_list_find(const rd_kafka_topic_partition_list_t* list, const char* topic,
                                                               int32_t partition) {
    for (int i = 0; i < list->cnt; ++i) {
        if (list->elems[i].partition == partition && std::string_view(list->elems[i].topic) == topic) return &list->elems[i];
    }
    return nullptr;
}
rd_kafka_topic_partition_list_t* rd_kafka_topic_partition_list_copy(const rd_kafka_topic_partition_list_t* list) {
    auto* copy = rd_kafka_topic_partition_list_new(list->cnt);
    for (int i = 0; i < list->cnt; ++i) {
        const rd_kafka_topic_partition_t& from = list->elems[i];
        rd_kafka_topic_partition_t* place = rd_kafka_topic_partition_list_add(copy, from.topic, from.partition);
        place->offset = from.offset;
        place->err = from.err;
        if (from.metadata == nullptr) continue;
        place->metadata = std::malloc(from.metadata_size + 1);
        place->metadata_size = from.metadata_size;
        std::memcpy(place->metadata, from.metadata, from.metadata_size);
    }
    return copy;
}

rd_kafka_headers_t* rd_kafka_headers_new(size_t) { return new rd_kafka_headers_s; }
void rd_kafka_headers_destroy(rd_kafka_headers_t* headers) { delete headers; }
rd_kafka_resp_err_t rd_kafka_header_add(rd_kafka_headers_t* headers, const char* name, ssize_t name_size, const void* value,
                                        ssize_t value_size) {
    headers->list.emplace_back(std::string(name, static_cast<std::size_t>(name_size)),
                               std::string(static_cast<const char*>(value), static_cast<std::size_t>(value_size)));
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}
rd_kafka_resp_err_t rd_kafka_header_get_all(const rd_kafka_headers_t* headers, size_t index, const char** name, const void** value,
                                            size_t* size) {
    if (index >= headers->list.size()) return RD_KAFKA_RESP_ERR__NOENT;
    *name = headers->list[index].first.c_str();
    *value = headers->list[index].second.data();
    *size = headers->list[index].second.size();
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

}  // extern "C"
