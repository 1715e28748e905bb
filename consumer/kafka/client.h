// The producing side of the client commands: submitting jobs, registering adapters, making keys, cancelling. Called by `submit`,
// `adapters`, `keys` and `cancel`. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "consumer/kafka/config.h"
#include "schema/completion.h"
#include "schema/key.h"
#include "schema/topics.h"

namespace lorry::consumer {

// Sends job lines to the jobs topic, many in flight, with bounded memory.
class JobProducer {
public:
    struct Failure {
        std::uint64_t line = 0;  // as passed to submit()
        std::string reason;
    };
    struct Options {
        std::string topic;
        std::string batch_id = {};                       // header; empty: none
        std::optional<schema::Timestamp> deadline = {};  // header
        std::vector<schema::Header> headers = {};        // any others
        std::uint32_t spread = 1;                        // > 1: spread a model's jobs over the keys name#0 … name#(spread-1)
        std::size_t bytes_in_flight_max = 32u << 20;
        std::size_t message_bytes_max = 10u << 20;  // larger lines fail
        std::function<void(const Failure&)> on_failure = {};
    };
    struct Counts {
        std::uint64_t sent = 0;       // accepted by submit()
        std::uint64_t delivered = 0;  // acknowledged
        std::uint64_t failed = 0;
    };

    // Throws KafkaError when the brokers do not answer by deadline_start or the topic does not exist.
    JobProducer(const KafkaConfig& config, Options options);
    ~JobProducer();

    // Sends one line, byte for byte, as a record's value. Waits while too much is in flight. Throws KafkaError when nothing moves for
    // deadline_later, or when the topic refuses every record (a missing right).
    void submit(std::string_view line, std::string_view model, std::uint64_t line_number);
    // Serves delivery reports, which keeps counts() current; for callers that do other work for long.
    void poll();
    // Waits until every record was acknowledged or has failed. Throws like submit().
    void finish();
    Counts counts() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

// Each call waits for the brokers' acknowledgement and throws KafkaError without it.
// Registers thousands over one connection. If it throws, some of them may be registered.
void register_adapters(const KafkaConfig& config, const std::string& adapters_topic,
                       const std::vector<schema::AdapterRegistration>& adapters);
void remove_adapter(const KafkaConfig& config, const std::string& adapters_topic, const std::string& name);
// Writes what the keys are from now on, in place of earlier records of theirs.
void write_keys(const KafkaConfig& config, const std::string& keys_topic, const std::vector<schema::KeyRecord>& keys);
// Cancels jobs that are in the jobs topic at the time of the call: reads its id and the ends of its partitions, and
// sends them with each cancel. If it throws, some of them may have been sent.
void send_cancels(const KafkaConfig& config, const schema::Topics& topics, std::vector<schema::Cancel> cancels);

}  // namespace lorry::consumer
