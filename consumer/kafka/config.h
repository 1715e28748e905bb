// What a user may say about Kafka: the brokers and the `[kafka]` table, which goes to librdkafka verbatim except for the keys that the
// protocol owns. Made by ops/ from lorry.toml and flags; read by everything in consumer/kafka_*.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lorry::consumer {

// classic: static members, so that a restarted worker has its partitions at once. consumer (KIP-848): dynamic ones without a barrier at
// rebalances; after a crash its partitions wait for the session time-out that the brokers set.
enum class GroupProtocol : std::uint8_t { classic, consumer };

struct KafkaConfig {
    std::string brokers;                                // host:port, …
    std::map<std::string, std::string> passthrough;     // the [kafka] table
    std::chrono::milliseconds deadline_start{30'000};   // until the brokers answered for the first time
    std::chrono::milliseconds deadline_later{300'000};  // how long they may be away afterwards
};

// A mistake in the configuration: the message names the key and says what to do instead. The program ends with 2.
struct KafkaConfigError : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

// A bad world: brokers away past their deadline, a missing topic, a refused right. The message says what to do.
struct KafkaError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Why this key may not stand in the `[kafka]` table; nullopt: it may.
std::optional<std::string_view> refusal_of_kafka_key(std::string_view key);

// Throws KafkaConfigError for the first key that is refused, for keys or values that librdkafka does not know, and for empty brokers.
void check_kafka_config(const KafkaConfig& config);

}  // namespace lorry::consumer
