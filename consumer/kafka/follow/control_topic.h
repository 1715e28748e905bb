// A CancelDirectory that follows the control topic. Made by the worker; the generator asks it which jobs were cancelled.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "consumer/kafka/config.h"
#include "consumer/seams.h"
#include "schema/topics.h"

namespace lorry::consumer {

class TopicFollower;

class ControlTopic : public CancelDirectory {
public:
    struct Options {
        schema::Topics topics;
        // The most cancels that are kept, and about what they may take in memory. Beyond either, the half that was read first is
        // forgotten, and the jobs they name are no longer cancelled.
        std::size_t cancels_max = 1'000'000;
        std::size_t bytes_max = std::size_t{256} << 20;
    };
    struct Counters {
        std::uint64_t cancels = 0;  // cancels accepted
        std::uint64_t refused = 0;  // records that are not cancels
        std::size_t known = 0;      // cancels kept now
    };

    // Starts reading. Throws KafkaError when the brokers do not answer, or the control or the jobs topic does not exist.
    ControlTopic(const KafkaConfig& config, Options options);
    ~ControlTopic() override;

    // Call before admitting jobs. Throws KafkaError at the deadline.
    void wait_until_read(Clock::time_point deadline);

    bool is_cancelled(const schema::Job& job) const override;
    std::uint64_t version() const override;
    Counters counters() const;

private:
    // By partition of the jobs topic. Shared by cancels that were sent together.
    using Offsets = std::shared_ptr<const std::vector<std::int64_t>>;
    // Which jobs the cancels of one id reach.
    struct Reach {
        std::uint64_t last = 0;                       // the number of the last cancel, in the order in which they were read
        Offsets jobs_end;                             // jobs below are cancelled; null: no cancel said it
        std::optional<schema::Timestamp> sent_until;  // of cancels without jobs_end: jobs with no later timestamp are cancelled
        bool covers(const schema::Job& job) const;
    };
    using ReachById = std::unordered_map<std::string, Reach>;
    using Calls = std::map<schema::Source, std::uint64_t>;  // the number of the cancel of each

    void apply(const schema::JobRecord& record);
    // These are called with mutex_ held.
    void keep(schema::Cancel cancel);
    void keep_by_id(schema::Cancel cancel);
    void extend(Reach& reach, schema::Cancel cancel);
    std::size_t known() const { return jobs_.size() + batches_.size() + calls_.size(); }
    void forget_older_half();

    const Options options_;
    const schema::TopicIds input_ids_;
    mutable std::mutex mutex_;
    ReachById jobs_;                           // guarded by mutex_
    ReachById batches_;                        // guarded by mutex_
    Calls calls_;                              // guarded by mutex_
    Offsets last_jobs_end_;                    // guarded by mutex_; of the last cancel that had it
    std::size_t bytes_ = 0;                    // guarded by mutex_; about what cancels and their offsets take
    Counters counters_;                        // guarded by mutex_
    std::unique_ptr<TopicFollower> follower_;  // last: its thread calls apply
};

}  // namespace lorry::consumer
