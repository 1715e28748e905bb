// What a worker counts between Kafka and the engine. The source, the sink and the committer each count in a struct of their own;
// KafkaMember::stats() returns copies of all three, and ops/metric_table.cpp gives each number the name of a metric.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lorry::consumer {

// A number that one thread changes and any thread reads. A copy holds the value of that moment.
class Count {
public:
    Count(std::uint64_t value = 0) : value_(value) {}
    Count(const Count& other) : value_(other.value_.load()) {}
    Count& operator=(const Count& other) {
        value_ = other.value_.load();
        return *this;
    }
    Count& operator++() {
        ++value_;
        return *this;
    }
    operator std::uint64_t() const { return value_; }

private:
    std::atomic<std::uint64_t> value_;
};

struct SourceCounters {
    Count skipped;   // jobs that an earlier owner of their partition had finished
    Count replayed;  // jobs that an earlier owner of their partition had taken and not finished
    Count rebalances;
    Count lost;      // times that partitions were lost
    Count held;      // partitions that wait now, because their commit metadata is full
    Count starting;  // jobs that wait now: for the commit of their start, or until others have run
};

struct SinkCounters {
    Count completions;
    Count dead_letters;
    Count chunks;
    Count too_large;  // completions that became the error result_too_large
    Count rejected;   // records that a broker refused
    Count commits;    // that held results
    Count outbox_records;  // now: finished jobs that are not yet committed
    Count outbox_bytes;    // now: their size
};

// Zero where commits are no transactions.
struct CommitCounters {
    Count transactions;  // committed
    Count aborts;        // nothing of the transaction was published; it was tried again
    Count fences;        // the transactional id was opened by another producer, or a transaction timed out
    Count unknown;       // outcomes that had to be asked for
};

}  // namespace lorry::consumer
