// How results become durable together with the offsets of their jobs: the one step in which at-least-once and a transactional protocol
// differ. Called by KafkaSink, on its thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consumer/kafka/connection.h"
#include "consumer/kafka/counters.h"
#include "consumer/kafka/leftovers.h"
#include "consumer/kafka/past_results.h"
#include "consumer/offset_tracker.h"
#include "schema/completion.h"

namespace lorry::consumer {

struct OutboxRecord {
    std::string topic;
    std::optional<std::int32_t> partition;  // nullopt: by key
    std::optional<std::string> key;
    std::optional<std::string> value;
    std::vector<schema::Header> headers;
};
// As the broker counts it, about.
std::size_t bytes_of(const OutboxRecord& record);

// One job's end: records that belong together.
struct OutboxEntry {
    schema::Source source;
    Epoch epoch = 0;
    std::vector<OutboxRecord> records;  // the result or the dead letter first
    std::size_t bytes = 0;
    // What an error in its place needs; without the body. nullopt: a dead letter.
    std::optional<schema::Completion> completion;
    std::uint32_t rejections = 0;  // times that a broker or the client would not take a record of it
};

struct RejectedEntry {
    OutboxEntry entry;
    std::string reason;
};

class Committer {
public:
    virtual ~Committer() = default;
    // Any thread.
    virtual CommitCounters counters() const { return {}; }
    // Makes the entries' records durable, marks their sources finished and commits the offsets of everything finished so far. Entries of an
    // epoch that is over are dropped. Returns those of which a record was refused; they are neither finished nor committed. Throws
    // KafkaError when the brokers are away past the deadline; nothing is marked finished then that was not published.
    virtual std::vector<RejectedEntry> commit(std::vector<OutboxEntry> entries) = 0;
};

// Records first, acknowledged by all in-sync replicas, then offsets. After a crash between the two whoever takes over finds the results;
// a worker that was thrown out of its group between them leaves second ones of the same id.
std::unique_ptr<Committer> make_at_least_once_committer(const KafkaConfig& config, KafkaConnection& consumer, OffsetTracker& tracker,
                                                        const ProducerLimits& limits);

// Records and offsets in one transaction (KIP-98, KIP-447): readers of committed records see each job's end once.
struct TransactionOptions {
    std::string id;  // transactional.id: cluster-wide, one per member
    std::chrono::milliseconds timeout{10'000};
    std::size_t entries_max = 10'000;  // of one transaction; fewer for a while after one timed out
    std::size_t bytes_max = std::size_t{64} << 20;
    ProducerLimits limits;
    LeftoverOptions leftovers;
};
// Waits until what an earlier worker of this id left open has ended. Throws KafkaError at deadline_start.
std::unique_ptr<Committer> make_transactional_committer(const KafkaConfig& config, KafkaConnection& consumer, PastResults& past_results,
                                                        OffsetTracker& tracker, TransactionOptions options);

// What may be taken as seen once this entry's records were delivered.
EndsSeen ends_seen(const DeliveredEnds& delivered, const OutboxEntry& entry);

// As librdkafka takes them; `consumer` allocates.
PartitionListHandle offsets_of(rd_kafka_t* consumer, const std::vector<PartitionCommit>& commits);

}  // namespace lorry::consumer
