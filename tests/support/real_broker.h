// The broker that ctest starts for tests with the label real_kafka (`ops/kafka start --secure`).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace lorry::tests {

struct RealBroker {
    std::string address;
    std::filesystem::path folder;  // of its data, with "secure", which has certificates and passwords
};
inline constexpr const char* no_real_broker = "LORRY_KAFKA_ADDRESS_FILE is not set: nothing was tested against a real Kafka";

// As LORRY_KAFKA_ADDRESS_FILE names it; nullopt: it is not set, and the test is to be skipped with no_real_broker.
inline std::optional<RealBroker> real_broker() {
    const char* const file = std::getenv("LORRY_KAFKA_ADDRESS_FILE");
    if (file == nullptr) return std::nullopt;
    RealBroker broker{.address = {}, .folder = std::filesystem::path(file).parent_path()};
    std::ifstream in(file);
    std::getline(in, broker.address);
    return broker;
}

}  // namespace lorry::tests
