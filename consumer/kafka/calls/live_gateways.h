// How many gateways run side by side. Each writes a heartbeat at intervals to the repeats topic, which all of them may read and write, and
// counts the gateways whose heartbeats it reads. Made by `lorry serve`.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "consumer/kafka/config.h"
#include "consumer/kafka/follow/follower.h"
#include "consumer/kafka/follow/record_writer.h"
#include "consumer/seams.h"
#include "schema/job.h"

namespace lorry::consumer {

class LiveGateways {
public:
    struct Options {
        std::string topic;                        // the repeats topic
        std::chrono::milliseconds beat{3'000};    // between two heartbeats
        std::chrono::milliseconds alive{10'000};  // as long after a heartbeat a gateway counts
    };
    // The keys of heartbeats begin with this; those of repeats never do.
    static constexpr std::string_view key_begin = "gateway/";

    // Begins to write heartbeats, on a thread of its own. Throws KafkaError when the brokers do not answer or the topic does not exist.
    LiveGateways(const KafkaConfig& config, Options options);
    // Says that this gateway ends.
    ~LiveGateways();

    // With this one, so at least 1. While this gateway cannot write, as when the brokers are away, it is what it was. Any thread.
    std::int64_t count() const;
    // Throws the exception that ended the follower, if any.
    void check() const { follower_.check(); }

private:
    void apply(const schema::JobRecord& record);
    void run(const std::stop_token& stop);
    // False: the brokers did not take it.
    bool write(bool has_ended);

    const Options options_;
    const std::string key_;
    std::atomic<bool> is_away_ = false;
    mutable std::mutex mutex_;
    mutable std::unordered_map<std::string, Clock::time_point> seen_;  // guarded by mutex_; when a heartbeat with that key was read
    mutable std::int64_t count_ = 1;                                   // guarded by mutex_
    RecordWriter writer_;
    TopicFollower follower_;
    std::jthread thread_;  // last: it uses all of the above
};

}  // namespace lorry::consumer
