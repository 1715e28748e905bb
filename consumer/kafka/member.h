// One worker's place in the consumer group: its source and its sink over one tracker and one consumer. Constructed by `lorry worker`.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "consumer/careful_starts.h"
#include "consumer/kafka/config.h"
#include "consumer/kafka/counters.h"
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
        bool exactly_once = true;  // with transactions, where the brokers can; else a worker that hung may leave results twice
        std::chrono::milliseconds transaction_timeout{10'000};
        CarefulStarts::Options careful_starts;
        std::size_t outbox_records_max = 10'000;
        std::size_t outbox_bytes_max = std::size_t{64} << 20;
        std::chrono::milliseconds stall_interval{5'000};  // between two looks for transactions that stay open
    };

    // Throws KafkaError when the brokers do not answer by deadline_start or a topic is missing; KafkaConfigError for the [kafka] table.
    // Joins the group with the first poll of source().
    KafkaMember(const KafkaConfig& config, Options options);
    ~KafkaMember();

    JobSource& source();
    // To be committed before source().close() returns (the handler's drain does); afterwards nothing can be.
    CompletionSink& sink();

    // The embedded broker keeps nothing and is no proof of anything.
    bool is_embedded() const;
    // Asked for, and the brokers can do it.
    bool is_exactly_once() const;

    struct Stats {
        SourceCounters source;
        SinkCounters sink;
        CommitCounters commits;
        std::size_t partitions = 0;
        std::size_t jobs_incomplete = 0;
        std::size_t metadata_chars = 0;  // of the longest commit metadata
        // The longest that readers of committed records have waited in a partition for a transaction to end (stable_offsets.h).
        std::chrono::milliseconds stall_jobs{0};
        std::chrono::milliseconds stall_results{0};
    };
    // Any thread.
    Stats stats() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lorry::consumer
