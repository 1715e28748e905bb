// Ends what an earlier transaction of our id left open although the brokers take it for ended. Called by the transactional committer,
// between opening a producer and its first transaction.
//
// A coordinator that comes up after an outage of all brokers may end a transaction that timed out meanwhile before it knows its
// partitions, and then passes over them ("Couldn't find leader endpoint … likely deleted already and hence can be skipped", Kafka 4.3.1):
// the transaction counts as aborted, but the partitions never hear of it. Readers of committed records would wait there, the group's
// offsets would stay undecided, and the next commit of the same producer would publish the aborted records and offsets along with its own.
#pragma once

#include <chrono>

#include "consumer/kafka_end_offsets.h"
#include "consumer/kafka_transactions.h"

namespace lorry::consumer {

struct LeftoverOptions {
    TopicPartitions outputs;  // where our transactions write
    TopicPartitions inputs;   // whose offsets they commit
    // How long transactions of others may keep a partition open: longer than any transaction's time-out.
    std::chrono::milliseconds patience{12'000};
    std::chrono::milliseconds deadline{300'000};
};

// `producer` is open and has no transaction; it has none afterwards. Mostly two requests that find nothing; where something stays open for
// longer than others' transactions can last, a transaction over those partitions and the offsets is begun and aborted, and its end ends the
// earlier one too. A result other than `done` asks for a new producer. Throws KafkaError when the brokers do not answer until the deadline.
StepResult end_leftovers(TransactionalProducer& producer, const KafkaConnection& consumer, const LeftoverOptions& options);

}  // namespace lorry::consumer
