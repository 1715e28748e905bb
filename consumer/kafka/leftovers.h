// Ends transactions with our id that brokers consider ended but that still hold partitions open. Called by the transactional committer
// between opening a producer and its first transaction.
//
// Kafka 4.3.1 leaves partitions open in two cases. First, a coordinator that starts after an outage of all brokers may end a transaction
// that timed out during the outage before it knows the transaction's partitions, and then skips them ("Couldn't find leader endpoint …
// likely deleted already and hence can be skipped"): the transaction is aborted, but its partitions never learn of it. Second, a broker
// that is killed while the markers of a commit are being written may come back without one of them: the transaction is committed, except in
// that partition. Readers of committed records wait in both cases. The next transaction of the same producer that ends in that partition
// ends the old one in the same way, so it must be ended in the right way.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "consumer/kafka/end_offsets.h"
#include "consumer/kafka/transactions.h"
#include "schema/job.h"
#include "schema/topics.h"

namespace lorry::consumer {

struct LeftoverOptions {
    schema::Topics topics;
    schema::TopicIds input_ids;  // of the topics of jobs
    std::string worker;          // our transactions are named after it
    TopicPartitions outputs;     // partitions that our transactions write to
    TopicPartitions inputs;      // partitions whose offsets they commit
};
struct LeftoverLimits {
    // How long transactions of other workers may keep a partition open; longer than any transaction's timeout.
    std::chrono::milliseconds patience;
    std::chrono::milliseconds deadline;  // per answer of the brokers
};

// `producer` must be open and have no transaction; it has none afterwards. Usually this costs two requests that find nothing. If a
// partition stays open for longer than transactions of other workers can last, this begins and ends a transaction over those partitions,
// which ends the earlier one too. In each partition that must be committed it leaves a filler record (schema::filler_key). A result other
// than `done` means that a new producer is needed. Throws KafkaError when the brokers do not answer by the deadline. `known_committed` is
// the name of the last transaction that the brokers reported to this process as committed; empty if there is none.
StepResult end_leftovers(TransactionalProducer& producer, const KafkaConnection& consumer, const LeftoverOptions& options,
                         const LeftoverLimits& limits, const std::string& known_committed);

// The name of a transaction, as it appears in a header of its records. No other transaction of this worker has the same number.
std::string name_of_transaction(const std::string& worker, std::int64_t number);

// The record that ended a job, and the transaction that wrote it.
struct EndOfJob {
    schema::Source job;
    std::string transaction;
};
// Whether a worker's transaction that is open in a partition was committed. This is the worker's last transaction there: each earlier one
// was ended, at the latest, by the end of the next. `ends` lists all jobs whose final records are after the partition's stable end, in the
// log's order, committed or not. `is_finished` answers by the group's offsets, read at an earlier moment.
//
// The transaction was committed if it is `known_committed`. Otherwise the offsets decide, because they are part of it: if it was committed,
// they mark all of its jobs as finished. If it was aborted, they mark the jobs as open, or another worker has finished them since. (A
// worker that was removed from its group may have left a later record for a job that was aborted, but hardly for all jobs of one
// transaction.)
bool counts_as_committed(const std::vector<EndOfJob>& ends, const std::string& worker, const std::string& known_committed,
                         const std::function<bool(const schema::Source& job)>& is_finished);

}  // namespace lorry::consumer
