// Implements JobProducer, and the keyed records of `adapters add|remove`, `keys` and `cancel`.
#include "consumer/kafka/client.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "consumer/kafka/end_offsets.h"
#include "consumer/kafka/producer.h"
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
        if (error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) reason = fmt::format("larger than topic {} accepts", options.topic);
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

// A record of the adapters, keys or control topic; without a value it is a tombstone.
struct KeyedRecord {
    std::string key;
    std::optional<std::string> value;
};

void send_all(const KafkaConfig& config, const std::string& topic, std::span<const KeyedRecord> records) {
    std::optional<std::size_t> refused;
    rd_kafka_resp_err_t reason = RD_KAFKA_RESP_ERR_NO_ERROR;
    const auto refuse = [&](std::uint64_t index, rd_kafka_resp_err_t error) {
        if (refused) return;
        refused = index;
        reason = error;
    };
    KafkaProducer producer(config, {.on_delivery = [&](const KafkaProducer::Delivery& delivery) {
                               if (delivery.error != RD_KAFKA_RESP_ERR_NO_ERROR) refuse(delivery.tag, delivery.error);
                           }});
    producer.connection().required_partition_count(topic);
    for (std::size_t i = 0; i < records.size() && !refused; ++i) {
        const auto sent = producer.send(
            {.topic = topic, .partition = std::nullopt, .key = records[i].key, .value = records[i].value, .headers = {}, .tag = i});
        if (!sent) refuse(i, sent.error());
    }
    producer.wait_all(fmt::format("writing to {}", topic));
    if (refused) {
        throw KafkaError(fmt::format("Kafka at {}: {} refuses the record for \"{}\": {}", config.brokers, topic, records[*refused].key,
                                     rd_kafka_err2str(reason)));
    }
}

// Says in each cancel where the partitions of the jobs topic end, uncommitted records included.
void add_jobs_end(const KafkaConfig& config, const std::string& topic, std::vector<schema::Cancel>& cancels) {
    const KafkaConnection connection(config, KafkaConnection::Kind::consumer, {});
    const TopicPartitions partitions = partitions_of(topic, connection.required_partition_count(topic));
    const EndOffsets ends =
        wait_for_end_offsets(connection, partitions, RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED, config.deadline_start, {}).value();
    std::vector<std::int64_t> offsets;
    for (const auto& partition : partitions) offsets.push_back(ends.at(partition));
    const std::string id = connection.topic_id(topic);
    for (schema::Cancel& cancel : cancels) {
        cancel.jobs_end = offsets;
        cancel.jobs_topic_id = id;
    }
}

void send_one(const KafkaConfig& config, const std::string& topic, const KeyedRecord& record) { send_all(config, topic, {&record, 1}); }

}  // namespace

void register_adapters(const KafkaConfig& config, const std::string& adapters_topic,
                       const std::vector<schema::AdapterRegistration>& adapters) {
    std::vector<KeyedRecord> records;
    for (const schema::AdapterRegistration& adapter : adapters) records.push_back({adapter.name, schema::encode_adapter(adapter)});
    send_all(config, adapters_topic, records);
}

void remove_adapter(const KafkaConfig& config, const std::string& adapters_topic, const std::string& name) {
    send_one(config, adapters_topic, {name, std::nullopt});
}

void write_keys(const KafkaConfig& config, const std::string& keys_topic, const std::vector<schema::KeyRecord>& keys) {
    std::vector<KeyedRecord> records;
    for (const schema::KeyRecord& key : keys) records.push_back({key.id, schema::encode_key(key)});
    send_all(config, keys_topic, records);
}

void send_cancels(const KafkaConfig& config, const schema::Topics& topics, std::vector<schema::Cancel> cancels) {
    add_jobs_end(config, topics.jobs(), cancels);
    std::vector<KeyedRecord> records;
    for (const schema::Cancel& cancel : cancels) records.push_back({cancel.id, schema::encode_cancel(cancel)});
    send_all(config, topics.control(), records);
}

}  // namespace lorry::consumer
