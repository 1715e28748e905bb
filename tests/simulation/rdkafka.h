// librdkafka's handles over a simulated cluster. The simulation's program is linked with rdkafka*.cpp instead of librdkafka, so all of
// consumer/kafka runs unchanged. Behaves as librdkafka 2.15 does as far as consumer/kafka depends on it; what that is, is written beside
// each function. Used by rdkafka*.cpp and world.cpp.
#pragma once

#include <librdkafka/rdkafka.h>

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/cluster.h"
#include "tests/simulation/plants.h"

struct rd_kafka_error_s {
    rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;
    std::string text;
    bool retriable = false;
    bool fatal = false;
    bool requires_abort = false;
};

struct rd_kafka_conf_s {
    std::map<std::string, std::string> values;
    void* opaque = nullptr;
    void (*on_log)(const rd_kafka_t*, int, const char*, const char*) = nullptr;
    void (*on_error)(rd_kafka_t*, int, const char*, void*) = nullptr;
    void (*on_report)(rd_kafka_t*, const rd_kafka_message_t*, void*) = nullptr;
    void (*on_rebalance)(rd_kafka_t*, rd_kafka_resp_err_t, rd_kafka_topic_partition_list_t*, void*) = nullptr;
    std::vector<std::pair<rd_kafka_interceptor_f_on_new_t*, void*>> on_new;
};

struct rd_kafka_topic_s {
    rd_kafka_s* client = nullptr;
    std::string name;
};

struct rd_kafka_headers_s {
    std::vector<std::pair<std::string, std::string>> list;
};

struct rd_kafka_queue_s {
    rd_kafka_s* client = nullptr;
    std::optional<lorry::simulation::TopicPartition> place;  // a partition's own queue
    std::deque<rd_kafka_op_s*> events;
};

struct rd_kafka_consumer_group_metadata_s {
    lorry::simulation::Cluster::Sender sender;
};

namespace lorry::simulation {

// One record that waits for its broker.
struct Message {
    TopicPartition place;
    Record record;
    void* tag = nullptr;
    Time deadline = 0;
};

struct Report {
    TopicPartition place;
    Error error = RD_KAFKA_RESP_ERR_NO_ERROR;
    std::int64_t offset = -1;
    void* tag = nullptr;
};

// The producer's side of a client, and the fiber that sends.
struct ProducerSide {
    enum class State : std::uint8_t { idle, ongoing, abortable, fatal };
    std::string id;  // transactional.id; empty: none
    ProducerId producer;
    State state = State::idle;
    rd_kafka_error_s error;  // why it is abortable or fatal
    bool needs_new_epoch = false;
    std::set<TopicPartition> registered;
    bool has_offsets = false;
    std::deque<Message> queue;
    std::size_t sending = 0;  // records in a request
    std::deque<Report> reports;
    std::uint64_t next_batch = 0;
    Machine::Fiber* sender = nullptr;
};

struct Reading {
    std::int64_t position = 0;
    rd_kafka_queue_s* queue = nullptr;
    std::optional<std::int64_t> end_told;  // the end of the partition was reported at this position
};

// The consumer's side of a client, and the fiber that keeps it in its group.
struct ConsumerSide {
    struct Rebalance {
        bool assign = false;
        std::vector<std::int32_t> partitions;
    };
    bool sees_uncommitted = false;
    std::map<TopicPartition, Reading> readings;
    // Group members only.
    bool subscribed = false;
    bool closed = false;
    std::string instance;
    std::string member;
    std::int32_t generation = -1;
    std::vector<std::int32_t> owned;     // by the group's word
    std::optional<Rebalance> rebalance;  // to be reported, or reported and not answered
    bool is_reported = false;
    bool is_lost = false;
    Machine::Fiber* keeper = nullptr;
};

}  // namespace lorry::simulation

struct rd_kafka_s {
    rd_kafka_conf_s conf;
    rd_kafka_type_t type = RD_KAFKA_PRODUCER;
    lorry::simulation::Cluster& cluster = lorry::simulation::Cluster::current();
    lorry::simulation::Machine& machine = cluster.machine();
    lorry::simulation::Process process = machine.process();
    std::uint64_t number = 0;
    std::optional<rd_kafka_error_s> fatal;
    bool told_down = false;
    bool is_woken = false;  // since the last poll
    std::vector<std::pair<rd_kafka_interceptor_f_on_request_sent_t*, void*>> on_sent;
    std::vector<std::pair<rd_kafka_interceptor_f_on_response_received_t*, void*>> on_response;
    std::vector<std::pair<rd_kafka_interceptor_f_on_broker_state_change_t*, void*>> on_broker_state;
    std::map<std::string, rd_kafka_topic_s> topics;
    lorry::simulation::ProducerSide producer;
    lorry::simulation::ConsumerSide consumer;

    rd_kafka_topic_s* topic(const std::string& name);
    std::string setting(const std::string& name, const std::string& otherwise) const;
    lorry::simulation::Time duration(const std::string& name) const;  // a setting in milliseconds
    void wake();
};

namespace lorry::simulation {

// Numbers of requests in the protocol.
inline constexpr std::int16_t api_produce = 0;
inline constexpr std::int16_t api_other = 3;
inline constexpr std::int16_t api_init_producer = 22;
inline constexpr std::int16_t api_add_partitions = 24;
inline constexpr std::int16_t api_add_offsets = 25;
inline constexpr std::int16_t api_end_transaction = 26;
inline constexpr std::int16_t api_commit_offsets = 28;

Time deadline_in(const rd_kafka_s& client, int timeout_ms);
bool is_retriable(Error error);
void lose_connection(rd_kafka_s& client);
void tell_response(rd_kafka_s& client, std::int16_t api, Error error);
// All clients that live, in order of their making.
std::vector<rd_kafka_s*>& clients();

// Sends one request until it is answered by something else than "try again", and returns the answer; _TIMED_OUT at the deadline, when the
// request may still be carried out. `apply` is the broker's side: it must hold copies, as a lost request may arrive when nobody waits any
// more. One fiber of the client calls it and waits.
Error request(rd_kafka_s& client, std::int16_t api, Time deadline, const std::function<Error()>& apply);

rd_kafka_error_t* make_error(Error code, const std::string& text, bool retriable = false, bool fatal = false, bool requires_abort = false);
rd_kafka_topic_partition_list_t* list_of(const std::string& topic, const std::vector<std::int32_t>& partitions);
void run_sender(rd_kafka_s& client);
void run_keeper(rd_kafka_s& client);
// Calls back about records that were delivered or refused; returns how many there were.
std::size_t serve_reports(rd_kafka_s& client);

}  // namespace lorry::simulation
