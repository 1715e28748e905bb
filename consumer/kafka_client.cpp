// JobProducer and the single records of `adapters add|remove` and `cancel`.
#include "consumer/kafka_client.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "consumer/kafka_producer.h"
#include "schema/codec.h"

namespace lorry::consumer {

struct JobProducer::State {
    Options options;
    std::vector<schema::Header> headers;
    Counts counts;
    std::uint64_t next_spread = 0;
    KafkaProducer producer;

    State(const KafkaConfig& config, Options given)
        : options(std::move(given)),
          producer(config, {.limits = {.record_bytes_max = options.message_bytes_max},
                            .bytes_in_flight_max = options.bytes_in_flight_max,
                            .on_delivery = [this](const KafkaProducer::Delivery& delivery) {
                                if (delivery.error == RD_KAFKA_RESP_ERR_NO_ERROR) {
                                    ++counts.delivered;
                                } else {
                                    fail(delivery.tag, delivery.error);
                                }
                            }}) {
        headers = options.headers;
        if (!options.batch_id.empty()) headers.emplace_back("batch_id", options.batch_id);
        if (options.deadline) headers.emplace_back("deadline", std::to_string(options.deadline->time_since_epoch().count()));
    }

    void fail(std::uint64_t line, rd_kafka_resp_err_t error) {
        ++counts.failed;
        std::string reason = rd_kafka_err2str(error);
        if (error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) reason = fmt::format("larger than topic {} takes", options.topic);
        if (options.on_failure) options.on_failure({line, std::move(reason)});
    }
};

JobProducer::JobProducer(const KafkaConfig& config, Options options) : state_(std::make_unique<State>(config, std::move(options))) {
    CHECK(state_->options.spread > 0, "a model's jobs need at least one key");
    state_->producer.connection().required_partition_count(state_->options.topic);
}

JobProducer::~JobProducer() = default;

void JobProducer::submit(std::string_view line, std::string_view model, std::uint64_t line_number) {
    State& state = *state_;
    ++state.counts.sent;
    std::string key(model);
    if (state.options.spread > 1) key += fmt::format("#{}", state.next_spread++ % state.options.spread);
    const auto sent = state.producer.send(
        {.topic = state.options.topic, .partition = std::nullopt, .key = key, .value = line, .headers = state.headers, .tag = line_number});
    if (!sent) state.fail(line_number, sent.error());
    state.producer.poll(std::chrono::milliseconds(0));
}

void JobProducer::poll() { state_->producer.poll(std::chrono::milliseconds(0)); }

void JobProducer::finish() { state_->producer.wait_all("submitting jobs"); }

JobProducer::Counts JobProducer::counts() const { return state_->counts; }

namespace {

void send_one(const KafkaConfig& config, const std::string& topic, const std::string& key, const std::optional<std::string>& value) {
    rd_kafka_resp_err_t refused = RD_KAFKA_RESP_ERR_NO_ERROR;
    KafkaProducer producer(config, {.on_delivery = [&](const KafkaProducer::Delivery& delivery) { refused = delivery.error; }});
    producer.connection().required_partition_count(topic);
    const auto sent = producer.send({.topic = topic, .partition = std::nullopt, .key = key, .value = value, .headers = {}, .tag = 0});
    if (!sent) refused = sent.error();
    producer.wait_all(fmt::format("writing to {}", topic));
    if (refused != RD_KAFKA_RESP_ERR_NO_ERROR) {
        throw KafkaError(
            fmt::format("Kafka at {}: {} refuses the record for \"{}\": {}", config.brokers, topic, key, rd_kafka_err2str(refused)));
    }
}

}  // namespace

void register_adapter(const KafkaConfig& config, const std::string& adapters_topic, const schema::AdapterRegistration& adapter) {
    send_one(config, adapters_topic, adapter.name, schema::encode_adapter(adapter));
}

void remove_adapter(const KafkaConfig& config, const std::string& adapters_topic, const std::string& name) {
    send_one(config, adapters_topic, name, std::nullopt);
}

void send_cancel(const KafkaConfig& config, const std::string& control_topic, const schema::Cancel& cancel) {
    send_one(config, control_topic, cancel.id, schema::encode_cancel(cancel));
}

}  // namespace lorry::consumer
