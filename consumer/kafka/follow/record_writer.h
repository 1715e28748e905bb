// Writes single records of topics that are followed, and waits for them. Used by batch_topics.cpp and live_gateways.cpp. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "consumer/kafka/config.h"

namespace lorry::consumer {

class KafkaProducer;

class RecordWriter {
public:
    explicit RecordWriter(const KafkaConfig& config);
    ~RecordWriter();

    struct Record {
        std::string topic;
        std::optional<std::int32_t> partition;  // nullopt: by the key
        std::string key;
        std::optional<std::string> value;  // nullopt: the key has no record any more
    };
    // Throws KafkaError if the brokers do not take it within ten seconds; they may have it all the same.
    void write(const Record& record);

private:
    KafkaConfig config_;
    std::mutex mutex_;
    std::unique_ptr<KafkaProducer> producer_;  // guarded by mutex_; recreated after a failure
    std::optional<std::string> refusal_;       // guarded by mutex_; of the record that is being written
};

}  // namespace lorry::consumer
