// What a user may configure about Kafka: the brokers and the `[kafka]` table, which is passed to librdkafka verbatim except for the keys
// that the protocol owns. Made by ops/ from lorry.toml and flags; read by everything in consumer/kafka/.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lorry::consumer {

// classic: static members, so that a restarted worker gets its partitions back at once. consumer (KIP-848): dynamic members, without a
// barrier at rebalances; after a crash, partitions wait for the session timeout that the brokers set.
enum class GroupProtocol : std::uint8_t { classic, consumer };

class ReadingPace;

struct KafkaConfig {
    std::string brokers;                                // host:port, …
    std::map<std::string, std::string> passthrough;     // the [kafka] table
    std::chrono::milliseconds deadline_start{30'000};   // how long to wait for the first answer of the brokers
    std::chrono::milliseconds deadline_later{300'000};  // how long the brokers may be away after that
    ReadingPace* pace = nullptr;                        // set only by `lorry up`, for the embedded broker; it outlives all clients
};

// A mistake in the configuration. The message names the key and says what to do instead. The program exits with status 2.
struct KafkaConfigError : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

// Brokers away past their deadline, a missing topic or a missing right. The message says what to do.
struct KafkaError : std::runtime_error {
    using std::runtime_error::runtime_error;
};
// The brokers did not answer in time. They may later.
struct KafkaAway : KafkaError {
    using KafkaError::KafkaError;
};

// Why this key is not allowed in the `[kafka]` table; nullopt: it is allowed.
std::optional<std::string_view> refusal_of_kafka_key(std::string_view key);

// Throws KafkaConfigError for a key or a value that is not allowed, and for brokers that are not host:port. It never quotes secrets.
void check_kafka_config(const KafkaConfig& config);

}  // namespace lorry::consumer
