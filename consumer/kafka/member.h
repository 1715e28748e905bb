// One worker's membership in the consumer group: its source and its sink over one offset tracker and one consumer. Made by `lorry worker`.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consumer/careful_starts.h"
#include "consumer/kafka/config.h"
#include "consumer/kafka/counters.h"
#include "consumer/kafka/unreadable.h"
#include "consumer/seams.h"
#include "schema/topics.h"

namespace lorry::consumer {

class KafkaMember {
public:
    struct Options {
        schema::Topics topics;
        std::string group;   // named after the base model
        std::string member;  // unique in the group, and the same after a restart
        GroupProtocol protocol = GroupProtocol::classic;
        std::chrono::milliseconds session_timeout{20'000};
        std::chrono::milliseconds poll_interval_max{300'000};
        std::chrono::milliseconds drain_budget{2'000};
        bool exactly_once = true;  // uses transactions if the brokers support them; without, a worker that hung may leave results twice
        std::chrono::milliseconds transaction_timeout{10'000};
        CarefulStarts::Options careful_starts;
        std::size_t outbox_records_max = 10'000;
        std::size_t outbox_bytes_max = std::size_t{64} << 20;
        std::chrono::milliseconds stall_interval{5'000};  // between two checks for transactions that stay open
    };

    // Throws KafkaError when the brokers do not answer by deadline_start or a topic is missing, and KafkaConfigError for the [kafka] table.
    // The first poll of source() joins the group.
    KafkaMember(const KafkaConfig& config, Options options);
    ~KafkaMember();

    JobSource& source();
    // Commit it before source().close() returns (the handler's drain does); later commits are impossible.
    CompletionSink& sink();

    // True for the embedded broker, which keeps nothing and proves nothing.
    bool is_embedded() const;
    // True when it was requested and the brokers support it.
    bool is_exactly_once() const;

    struct Stats {
        SourceCounters source;
        SinkCounters sink;
        CommitCounters commits;
        std::size_t partitions = 0;
        std::size_t jobs_incomplete = 0;
        std::size_t metadata_chars = 0;  // of the longest commit metadata
        // The longest time that readers of committed records have waited in a partition for a transaction to end (stable_offsets.h).
        std::chrono::milliseconds stall_jobs{0};
        std::chrono::milliseconds stall_results{0};
        std::vector<UnreadableRecord> unreadable;  // records that block partitions of the jobs topic
    };
    // Any thread.
    Stats stats() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::consumer
