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

#include "consumer/kafka/end_offsets.h"
#include "consumer/kafka/transactions.h"
#include "schema/job.h"
#include "schema/topics.h"

namespace lorry::consumer {

struct LeftoverOptions {
    schema::Topics topics;
    std::string jobs_topic_id;  // empty: the brokers do not tell
    std::string worker;         // as our transactions are named after it
    TopicPartitions outputs;    // where our transactions write
    TopicPartitions inputs;     // whose offsets they commit
};
struct LeftoverLimits {
    // How long transactions of others may keep a partition open: longer than any transaction's time-out.
    std::chrono::milliseconds patience;
    std::chrono::milliseconds deadline;  // for each answer of the brokers
};

// `producer` is open and has no transaction; it has none afterwards. Mostly two requests that find nothing; where something stays open for
// longer than others' transactions can last, a transaction over those partitions is begun and ended, and its end ends the earlier one too.
// Of those that must be committed it leaves a filler (schema::filler_key) in each. A result other than `done` asks for a new producer.
// Throws KafkaError when the brokers do not answer until the deadline. `known_committed`: the name of the last transaction of which the
// brokers told this process that it was committed; empty: there is none.
StepResult end_leftovers(TransactionalProducer& producer, const KafkaConnection& consumer, const LeftoverOptions& options,
                         const LeftoverLimits& limits, const std::string& known_committed);

// The name of a transaction in the header of its records: no other of this worker has the number.
std::string name_of_transaction(const std::string& worker, std::int64_t number);

// A job's end, and the transaction that it came in.
struct EndOfJob {
    schema::Source job;
    std::string transaction;
};
// Whether a worker's transaction that stands open in a partition was committed. That is its last one there: each earlier one was ended at
// the latest by the end of the next. `ends`: of all jobs behind the partition's stable end, in the log's order, committed or not;
// is_finished: by the group's offsets of an earlier moment.
//
// It was if it is `known_committed`. Otherwise the offsets tell, as they are part of it: if it was committed they call all of its jobs
// finished. If it was aborted they call them open, or another worker has ended them later. (A worker that was thrown out of its group may
// have left a later end of a job that was aborted, hardly of all jobs of one transaction.)
bool counts_as_committed(const std::vector<EndOfJob>& ends, const std::string& worker, const std::string& known_committed,
                         const std::function<bool(const schema::Source& job)>& is_finished);

}  // namespace lorry::consumer
