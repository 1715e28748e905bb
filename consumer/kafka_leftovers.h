// Ends what an earlier transaction of our id left open although the brokers take it for ended. Called by the transactional committer,
// between opening a producer and its first transaction.
//
// Kafka 4.3.1 leaves partitions open in two cases. A coordinator that comes up after an outage of all brokers may end a transaction that
// timed out meanwhile before it knows its partitions, and then passes over them ("Couldn't find leader endpoint … likely deleted already
// and hence can be skipped"): the transaction is aborted, but the partitions never hear of it. And a broker that is killed while a commit's
// markers are written may come back without one of them: the transaction is committed, but for that partition. Readers of committed records
// wait at both, and the next transaction of the same producer that ends there ends the old one the same way: it must be the right one.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "consumer/kafka_end_offsets.h"
#include "consumer/kafka_transactions.h"
#include "schema/job.h"
#include "schema/topics.h"

namespace lorry::consumer {

struct LeftoverOptions {
    schema::Topics topics;
    std::string worker;       // as the ends of jobs that we publish name it
    TopicPartitions outputs;  // where our transactions write
    TopicPartitions inputs;   // whose offsets they commit
};
struct LeftoverLimits {
    // How long transactions of others may keep a partition open: longer than any transaction's time-out.
    std::chrono::milliseconds patience{12'000};
    std::chrono::milliseconds deadline{300'000};
};

// `producer` is open and has no transaction; it has none afterwards. Mostly two requests that find nothing; where something stays open for
// longer than others' transactions can last, a transaction over those partitions is begun and ended, and its end ends the earlier one too.
// Of those that must be committed it leaves a filler (schema::filler_key) in each. A result other than `done` asks for a new producer.
// Throws KafkaError when the brokers do not answer until the deadline.
StepResult end_leftovers(TransactionalProducer& producer, const KafkaConnection& consumer, const LeftoverOptions& options,
                         const LeftoverLimits& limits);

// A job's end, by whom.
struct EndOfJob {
    schema::Source job;
    std::string worker;
};
// Whether the transaction that a worker's ends behind a partition's stable end belong to was committed, by the group's offsets of an
// earlier moment: it was if they call all its jobs finished, and at least one of them has no other end behind it. `ends` in the log's
// order, whether committed or not.
bool was_committed(const std::vector<EndOfJob>& ends, const std::string& worker,
                   const std::function<bool(const schema::Source& job)>& is_finished);

}  // namespace lorry::consumer
