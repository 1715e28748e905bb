// A CancelDirectory that follows the control topic. Made by the worker; the generator asks it which jobs were cancelled.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "consumer/kafka/config.h"
#include "consumer/seams.h"

namespace lorry::consumer {

class TopicFollower;

class ControlTopic : public CancelDirectory {
public:
    struct Options {
        std::string topic;
        // Maximum number of cancels kept in memory. Beyond it the older half is forgotten, and the jobs they name are no longer cancelled.
        std::size_t cancels_max = 1'000'000;
    };
    struct Counters {
        std::uint64_t cancels = 0;  // cancels accepted
        std::uint64_t refused = 0;  // records that are not cancels
        std::size_t known = 0;      // cancels kept now
    };

    // Starts reading. Throws KafkaError when the brokers do not answer or the topic does not exist.
    ControlTopic(const KafkaConfig& config, Options options);
    ~ControlTopic() override;

    // Call before admitting jobs. Throws KafkaError at the deadline.
    void wait_until_read(Clock::time_point deadline);

    bool is_cancelled(std::string_view job_id, std::string_view batch_id, std::optional<schema::Timestamp> submitted) const override;
    std::uint64_t version() const override;
    Counters counters() const;

private:
    using LatestById = std::unordered_map<std::string, schema::Timestamp>;

    void apply(const schema::JobRecord& record);
    void forget_older_half();  // with mutex_ held

    const Options options_;
    mutable std::mutex mutex_;
    LatestById jobs_;                          // guarded by mutex_
    LatestById batches_;                       // guarded by mutex_
    Counters counters_;                        // guarded by mutex_
    std::unique_ptr<TopicFollower> follower_;  // last: its thread calls apply
};

}  // namespace lorry::consumer
