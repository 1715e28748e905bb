// Makes results durable together with the offsets of their jobs. This is the one step in which the at-least-once and the exactly-once
// protocol differ. Called by KafkaSink, on the publisher's thread.
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
// Approximate size in bytes, as the broker counts it.
std::size_t bytes_of(const OutboxRecord& record);

// The records of one finished job. They belong together.
struct OutboxEntry {
    schema::Source source;
    Epoch epoch = 0;
    std::vector<OutboxRecord> records = {};  // the result or the dead letter first
    std::size_t bytes = 0;
    // What an error needs that is published instead of the result; its body is empty. nullopt: a dead letter.
    std::optional<schema::Completion> completion = {};
    std::size_t producer_headers = 0;  // of a dead letter: the first headers of its record, which the job's producer wrote
    std::uint32_t rejections = 0;  // how often a broker or the client refused one of its records
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
    // epoch that has ended are dropped. Returns the entries of which a record was refused; they are neither finished nor committed. Throws
    // KafkaError when the brokers are away past the deadline; in that case nothing is marked finished that was not published.
    virtual std::vector<RejectedEntry> commit(std::vector<OutboxEntry> entries) = 0;
};

// Publishes records first, acknowledged by all in-sync replicas, and then commits offsets. After a crash between the two, the next owner of
// the partition finds the results. A worker that is removed from its group between the two leaves a second result with the same id.
std::unique_ptr<Committer> make_at_least_once_committer(const KafkaConfig& config, KafkaConnection& consumer, OffsetTracker& tracker,
                                                        const ProducerLimits& limits);

// Publishes records and offsets in one transaction (KIP-98, KIP-447): readers of committed records see each job's result exactly once.
struct TransactionOptions {
    std::string id;  // transactional.id: unique in the cluster, one per member
    std::chrono::milliseconds timeout{10'000};
    std::chrono::milliseconds heartbeat_interval{3'000};  // of the consumer
    std::size_t entries_max = 10'000;  // per transaction; fewer for a while after one timed out
    std::size_t bytes_max = std::size_t{64} << 20;
    ProducerLimits limits;
    LeftoverOptions leftovers;
};
// Waits until the transactions that an earlier worker with this id left open have ended. Throws KafkaError at deadline_start.
std::unique_ptr<Committer> make_transactional_committer(const KafkaConfig& config, KafkaConnection& consumer, PastResults& past_results,
                                                        OffsetTracker& tracker, TransactionOptions options);

// How far the results and dead letters count as seen after this entry's records were delivered.
EndsSeen ends_seen(const DeliveredEnds& delivered, const OutboxEntry& entry);

// Converts commits to librdkafka's list; the metadata is allocated by `consumer`.
PartitionListHandle offsets_of(rd_kafka_t* consumer, const std::vector<PartitionCommit>& commits);

}  // namespace lorry::consumer
