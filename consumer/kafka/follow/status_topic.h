// DailyTokens that follows the status topic from the last midnight on, so that all gateways count the same. Made by `lorry serve`.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "consumer/call_backend.h"
#include "consumer/kafka/config.h"
#include "consumer/seams.h"

namespace lorry::consumer {

class TopicFollower;

class StatusTopic final : public DailyTokens {
public:
    // Starts reading; until today is read, nothing is known. Throws KafkaError when the brokers do not answer or the topic does not exist.
    StatusTopic(const KafkaConfig& config, const std::string& topic);
    ~StatusTopic() override;

    // Throws the exception that ended the follower, if any. Call it now and then: nothing is known from then on.
    void check() const;

    std::optional<std::int64_t> used(std::string_view key, std::chrono::sys_days day) const override;
    static constexpr std::chrono::seconds patience{10};  // the topic was read to the end that it had so long ago

private:
    // The offsets of a partition, as ranges: gaps are few, as jobs end in about the order in which they came.
    class Offsets {
    public:
        bool has(std::int64_t offset) const;
        void add(std::int64_t offset);

    private:
        std::map<std::int64_t, std::int64_t> ends_;  // by the first offset; the end is the first that is not in the range
    };
    struct Day {
        std::map<std::string, std::int64_t, std::less<>> tokens;          // by key
        std::map<std::pair<std::string, std::int32_t>, Offsets> counted;  // jobs, by the topic and partition of their records
    };

    void apply(const schema::JobRecord& record);

    mutable std::mutex mutex_;
    std::map<std::chrono::sys_days, Day> days_;  // guarded by mutex_; today and yesterday
    std::unique_ptr<TopicFollower> follower_;    // last: its thread calls apply
};

}  // namespace lorry::consumer
