// What a consumer group has committed, looked at and set from outside: nothing here joins the group. Called by `lorry offsets`.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consumer/commit_metadata.h"
#include "consumer/kafka/config.h"
#include "schema/job.h"
#include "schema/topics.h"

namespace lorry::consumer {

struct PartitionOffsets {
    std::int32_t partition = 0;
    std::optional<std::int64_t> committed;  // nullopt: nothing yet, or only for an earlier topic of that name
    std::string metadata;                   // as it was committed
    std::int64_t first = 0;                 // the log's start and end
    std::int64_t end = 0;
    bool is_outdated = false;  // what was committed is known to be about an earlier topic of that name
};

struct GroupMembers {
    std::string state;               // as Kafka names it: Stable, PreparingRebalance, …, Empty; Dead: no such group
    std::vector<std::string> names;  // of each member: its static id, or the id that the broker gave it
};

struct NewOffset {
    std::int32_t partition = 0;
    std::int64_t offset = 0;
    std::string metadata;
};

// One thread. All waits end at deadline_start with a KafkaError; so do missing rights and topics.
class GroupOffsets {
public:
    enum class View : std::uint8_t {
        now,      // what is committed, though a transaction of the group may be open
        settled,  // waits until none is
    };
    GroupOffsets(const KafkaConfig& config, std::string group, schema::Topics topics, View view);
    ~GroupOffsets();

    // nullopt: the embedded broker does not say.
    std::optional<GroupMembers> members() const;
    // Identifies the jobs topic in commits (mark_of_topic).
    std::int64_t topic_mark() const;
    // Of all partitions of the jobs topic, in their order.
    std::vector<PartitionOffsets> read() const;
    // Per partition of the jobs topic the first offset whose record is not older than `time`, or the log's end.
    std::vector<std::int64_t> offsets_since(schema::Timestamp time) const;
    // The broker refuses while the group has members: KafkaError.
    void set(const std::vector<NewOffset>& offsets) const;
    // Per partition of the jobs topic where the results and dead letters of its jobs end now.
    std::vector<EndsSeen> ends_seen() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::consumer
