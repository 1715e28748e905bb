// A KeyDirectory that follows the keys topic: a key that is made or revoked is known a moment after its record was written. Made by the
// commands that serve HTTP.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "consumer/call_backend.h"
#include "consumer/kafka/config.h"
#include "consumer/seams.h"
#include "schema/store/key_store.h"

namespace lorry::consumer {

class TopicFollower;

class KeyTopic final : public KeyDirectory {
public:
    struct Counters {
        std::uint64_t refused = 0;  // records that are no keys: their ids are unknown from then on
        std::int64_t known = 0;     // keys, expired and revoked ones as well
    };

    // Starts reading. Throws KafkaError when the brokers do not answer or the topic does not exist.
    KeyTopic(const KafkaConfig& config, std::string topic);
    ~KeyTopic() override;

    // Call before serving: until then, keys are unknown and revoked ones may still be good. Throws KafkaError at the deadline.
    void wait_until_read(Clock::time_point deadline);
    // Throws the exception that ended the follower, if any. Call it now and then: no key is current from then on.
    void check() const;

    std::optional<schema::KeyRecord> find(std::string_view id) const override;
    // Whether the topic was read to the end that it had no more than `patience` ago. False while its brokers do not answer.
    bool is_current() const override;
    static constexpr std::chrono::seconds patience{5};
    Counters counters() const;

private:
    void apply(const std::vector<schema::JobRecord>& records);

    const std::string topic_;
    mutable std::mutex mutex_;
    schema::KeyStore keys_;                    // guarded by mutex_
    std::uint64_t refused_ = 0;                // guarded by mutex_
    std::unique_ptr<TopicFollower> follower_;  // last: its thread calls apply
};

}  // namespace lorry::consumer
