// Publishes completions to Kafka. Made by KafkaMember; called by the publisher, on its thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "consumer/kafka/committer.h"
#include "consumer/kafka/producer.h"
#include "consumer/seams.h"
#include "schema/topics.h"

namespace lorry::consumer {

// Chunks and `running` statuses are sent at once, by a producer of their own. A completion waits in the outbox until commit(), which first
// waits until all chunks and statuses are acknowledged. So nothing of a job appears after its completion.
class KafkaSink : public CompletionSink {
public:
    struct Options {
        schema::Topics topics;
        std::size_t outbox_records_max = 10'000;
        std::size_t outbox_bytes_max = std::size_t{64} << 20;
        // The largest record that each topic accepts, in bytes.
        struct Limits {
            std::size_t results = 1'000'000;
            std::size_t chunks = 1'000'000;
            std::size_t status = 1'000'000;
            std::size_t dlq = 1'000'000;
        } limits;
        // Of the topics of jobs: written with each result and dead letter, if brokers have topic ids; a takeover may need it.
        schema::TopicIds input_ids = {};
        std::int32_t results_partitions = 1;
        std::int32_t dlq_partitions = 1;
    };

    KafkaSink(const KafkaConfig& config, Options options, std::unique_ptr<Committer> committer);

    // Commits first when the outbox is full.
    void publish(Outcome outcome) override;
    void publish(const schema::Chunk& chunk) override;
    // For running jobs only; the terminal status is made from the completion and published with it.
    void publish(const schema::Status& status) override;
    std::size_t commit() override;
    // Leaves the others: each partition of results and statuses that a transaction writes to makes it longer.
    std::size_t commit_calls() override;

    // Any thread.
    SinkCounters counters() const { return counters_; }

private:
    OutboxEntry entry_of(Outcome outcome);
    void set_records(OutboxEntry& entry, const schema::Completion& completion);
    void put(OutboxEntry entry);
    void put_back(RejectedEntry rejected);
    // Replaces the completion by an error with that code.
    void turn_into_error(OutboxEntry& entry, schema::ErrorCode code, std::string message);
    using Attempt = std::pair<std::string, std::int64_t>;  // job id, attempt

    std::vector<schema::Header> with_topic_id(std::vector<schema::Header> headers, const std::string& topic) const;
    static void leave_out_value(OutboxEntry& entry);
    static void leave_out_key_and_headers(OutboxEntry& entry);
    // stream: the answer that is broken if this record is refused.
    void send_event(std::string_view topic, const std::string& job_id, std::optional<Attempt> stream, const std::string& value);
    void commit_outbox();
    std::vector<OutboxEntry> take_outbox();
    // Entries that were taken out of the outbox.
    void commit(std::vector<OutboxEntry> entries);

    const Options options_;
    std::unique_ptr<Committer> committer_;
    std::vector<OutboxEntry> outbox_;
    std::size_t outbox_bytes_ = 0;
    std::size_t uncounted_ = 0;                                         // committed since the last return of commit()
    std::unordered_map<std::uint64_t, std::optional<Attempt>> events_;  // chunks and statuses in flight, by tag
    std::uint64_t next_tag_ = 0;
    std::set<Attempt> broken_streams_;  // answers of which a chunk was refused
    SinkCounters counters_;
    KafkaProducer producer_;  // for events; last: its deliveries write to the members above
};

}  // namespace lorry::consumer
