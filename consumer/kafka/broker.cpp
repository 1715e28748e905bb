// Wraps librdkafka's mock cluster in a class.
#include "consumer/kafka/broker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <thread>

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include "consumer/kafka/config.h"
#include "consumer/kafka/handles.h"
#include "consumer/kafka/port_relay.h"
#include "schema/check.h"

namespace lorry::consumer {

struct EmbeddedBroker::Handle {
    KafkaClientHandle client;  // the cluster belongs to a client that connects to nothing
    rd_kafka_mock_cluster_t* cluster = nullptr;
    int brokers = 0;
    std::string address;             // of the relay
    std::optional<PortRelay> relay;  // forwards to the cluster
    ~Handle() {
        if (cluster != nullptr) rd_kafka_mock_cluster_destroy(cluster);
    }
};

namespace {

void check(rd_kafka_resp_err_t error, const std::string& what) {
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) throw KafkaError(fmt::format("embedded broker: {}: {}", what, rd_kafka_err2str(error)));
}

void ignore_log(const rd_kafka_t*, int, const char*, const char*) {}

}  // namespace

EmbeddedBroker::EmbeddedBroker(const Options& options) : handle_(std::make_unique<Handle>()) {
    KafkaConfHandle conf(rd_kafka_conf_new());
    rd_kafka_conf_set_log_cb(conf.get(), ignore_log);
    std::array<char, 512> problem{};
    handle_->client.reset(rd_kafka_new(RD_KAFKA_PRODUCER, conf.get(), problem.data(), problem.size()));
    if (!handle_->client) throw KafkaError(fmt::format("embedded broker: {}", problem.data()));
    static_cast<void>(conf.release());
    handle_->brokers = options.brokers;
    handle_->cluster = rd_kafka_mock_cluster_new(handle_->client.get(), options.brokers);
    if (handle_->cluster == nullptr) throw KafkaError("embedded broker: cannot listen on any port of 127.0.0.1");
    rd_kafka_mock_group_initial_rebalance_delay_ms(handle_->cluster, static_cast<std::int32_t>(options.rebalance_delay.count()));
    for (const Topic& topic : options.topics) {
        // The cluster's thread empties its wake-up pipe after it has run its operations: an operation that arrives in between waits for a
        // second.
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        check(rd_kafka_mock_topic_create(handle_->cluster, topic.name.c_str(), topic.partitions, 1), "creating topic " + topic.name);
    }
    if (options.port) listen_on(*options.port);
}

void EmbeddedBroker::listen_on(std::uint16_t port) {
    CHECK(handle_->brokers == 1, "one port serves one broker");
    const std::string own = address();
    std::uint16_t own_port = 0;
    std::from_chars(own.data() + own.rfind(':') + 1, own.data() + own.size(), own_port);
    try {
        handle_->relay.emplace(port, own_port);
    } catch (const std::system_error& error) {
        throw KafkaError(fmt::format("embedded broker: {}; choose another port", error.what()));
    }
    handle_->address = fmt::format("127.0.0.1:{}", port);
    // Clients connect to the address in the metadata.
    rd_kafka_mock_broker_set_host_port(handle_->cluster, 1, "127.0.0.1", port);
}

EmbeddedBroker::~EmbeddedBroker() = default;

std::string EmbeddedBroker::address() const {
    return handle_->relay ? handle_->address : rd_kafka_mock_cluster_bootstraps(handle_->cluster);
}

const char* EmbeddedBroker::caveat() {
    return "embedded broker for trying things out: it keeps nothing when it ends, holds at most 5 MiB per partition (older records "
           "vanish), and results are published at least once, not exactly once";
}

void EmbeddedBroker::fail_requests(std::int16_t api_key, const std::vector<int>& error_codes) {
    std::vector<rd_kafka_resp_err_t> errors;
    for (const int code : error_codes) errors.push_back(static_cast<rd_kafka_resp_err_t>(code));
    rd_kafka_mock_push_request_errors_array(handle_->cluster, api_key, errors.size(), errors.data());
}

void EmbeddedBroker::fail_no_more(std::int16_t api_key) { rd_kafka_mock_clear_request_errors(handle_->cluster, api_key); }

void EmbeddedBroker::delay_answer(std::int16_t api_key, std::chrono::milliseconds delay) {
    CHECK(handle_->brokers == 1, "the delay applies to one broker");
    check(rd_kafka_mock_broker_push_request_error_rtts(handle_->cluster, 1, api_key, 1, RD_KAFKA_RESP_ERR_NO_ERROR,
                                                       static_cast<int>(delay.count())),
          "delaying an answer");
}

void EmbeddedBroker::count_requests() { rd_kafka_mock_start_request_tracking(handle_->cluster); }

std::size_t EmbeddedBroker::requests(std::int16_t api_key) const {
    std::size_t count = 0;
    rd_kafka_mock_request_t** all = rd_kafka_mock_get_requests(handle_->cluster, &count);
    const auto of_kind = std::count_if(all, all + count, [&](auto* request) { return rd_kafka_mock_request_api_key(request) == api_key; });
    rd_kafka_mock_request_destroy_array(all, count);
    return static_cast<std::size_t>(of_kind);
}

void EmbeddedBroker::set_topic_error(const std::string& topic, int error_code) {
    rd_kafka_mock_topic_set_error(handle_->cluster, topic.c_str(), static_cast<rd_kafka_resp_err_t>(error_code));
}

void EmbeddedBroker::set_down(bool down) {
    for (std::int32_t broker = 1; broker <= handle_->brokers; ++broker) {
        check(down ? rd_kafka_mock_broker_set_down(handle_->cluster, broker) : rd_kafka_mock_broker_set_up(handle_->cluster, broker),
              "moving a broker up or down");
    }
}

void EmbeddedBroker::delete_records(const std::string& topic, std::int32_t partition, std::int64_t below) {
    check(rd_kafka_mock_partition_delete_records(handle_->cluster, topic.c_str(), partition, below), "deleting records of " + topic);
}

}  // namespace lorry::consumer
