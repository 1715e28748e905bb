// Reads and sets what a consumer group has committed, without joining the group, and gives up records that it cannot read. Called by
// `lorry offsets`.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consumer/commit_metadata.h"
#include "consumer/kafka/config.h"
#include "consumer/kafka/unreadable.h"
#include "schema/job.h"
#include "schema/topics.h"

namespace lorry::consumer {

struct PartitionOffsets {
    std::int32_t partition = 0;
    std::optional<std::int64_t> committed;  // nullopt: nothing yet, or only for an earlier topic of the same name
    std::string metadata;                   // as committed
    std::int64_t first = 0;                 // start and end of the log
    std::int64_t end = 0;
    bool is_outdated = false;  // the commit is known to belong to an earlier topic of the same name
};

struct GroupMembers {
    std::string state;               // as Kafka names it: Stable, PreparingRebalance, …, Empty; Dead: the group does not exist
    std::vector<std::string> names;  // per member: its static id, or the id that the broker assigned
};

struct NewOffset {
    std::int32_t partition = 0;
    std::int64_t offset = 0;
    std::string metadata;
};

// One thread. Every wait ends at deadline_start with a KafkaError. Missing rights and topics are KafkaErrors too.
class GroupOffsets {
public:
    enum class View : std::uint8_t {
        now,      // what is committed, even while a transaction of the group is open
        settled,  // waits until no transaction is open
    };
    // input: one of topics.inputs(), whose offsets these are; nullopt: the jobs topic.
    GroupOffsets(const KafkaConfig& config, std::string group, schema::Topics topics, View view,
                 const std::optional<std::string>& input = std::nullopt);
    ~GroupOffsets();

    // nullopt with the embedded broker, which does not report members.
    std::optional<GroupMembers> members() const;
    // Identifies the topic in commits (mark_of_topic).
    std::int64_t topic_mark() const;
    // Offsets of all partitions of the topic, in order.
    std::vector<PartitionOffsets> read() const;
    // For each partition of the topic, the first offset whose record is not older than `time`, or the log's end.
    std::vector<std::int64_t> offsets_since(schema::Timestamp time) const;
    // Throws KafkaError while the group has members: the broker refuses.
    void set(const std::vector<NewOffset>& offsets) const;
    // For each partition of the topic, where the results and dead letters of its jobs end now.
    std::vector<EndsSeen> ends_seen() const;
    // The batch that blocks the next owner of the partition, at the lowest offset that the group has not finished. nullopt: a record can
    // be read there, or there is none. Throws KafkaError if the commit does not say what is finished.
    std::optional<UnreadableBatch> blocking(const PartitionOffsets& at) const;
    // Gives up the batch of blocking(at): one transaction writes a dead letter for each of its jobs and marks them finished. Throws
    // KafkaError, and changes nothing, if the group has members or has committed since. Any other KafkaError may leave open whether the
    // transaction was committed.
    void skip(const PartitionOffsets& at, const UnreadableBatch& batch) const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::consumer
