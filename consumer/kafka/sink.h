// Where completions leave to Kafka. Made by KafkaMember; its calls come from the publisher's thread.
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

// Chunks and running statuses leave at once, by a producer of their own; a completion waits in the outbox until commit(), which first
// waits for all chunks and statuses to be acknowledged. So nothing of a job appears after its completion.
class KafkaSink : public CompletionSink {
public:
    struct Options {
        schema::Topics topics;
        std::size_t outbox_records_max = 10'000;
        std::size_t outbox_bytes_max = std::size_t{64} << 20;
        // What each topic takes per record.
        struct Limits {
            std::size_t results = 1'000'000;
            std::size_t chunks = 1'000'000;
            std::size_t status = 1'000'000;
            std::size_t dlq = 1'000'000;
        } limits;
        std::string jobs_topic_id = {};  // goes with each end, where the brokers tell it: a take-over may have to know
        std::int32_t results_partitions = 1;
        std::int32_t dlq_partitions = 1;
    };

    KafkaSink(const KafkaConfig& config, Options options, std::unique_ptr<Committer> committer);

    // When the outbox is full, commits first.
    void publish(Outcome outcome) override;
    void publish(const schema::Chunk& chunk) override;
    // Of running jobs; the terminal status is made from the completion and leaves with it.
    void publish(const schema::Status& status) override;
    std::size_t commit() override;

    // Any thread.
    SinkCounters counters() const { return counters_; }

private:
    OutboxEntry entry_of(Outcome outcome);
    void set_records(OutboxEntry& entry, const schema::Completion& completion);
    void put(OutboxEntry entry);
    void put_back(RejectedEntry rejected);
    // Replaces the completion by an error of that code.
    void turn_into_error(OutboxEntry& entry, schema::ErrorCode code, std::string message);
    using Attempt = std::pair<std::string, std::int64_t>;  // job id, attempt

    std::vector<schema::Header> with_topic_id(std::vector<schema::Header> headers) const;
    static void leave_out_value(OutboxEntry& entry);
    static void leave_out_key_and_headers(OutboxEntry& entry);
    // stream: whose answer is broken if this is refused.
    void send_event(std::string_view topic, const std::string& job_id, std::optional<Attempt> stream, const std::string& value);
    void commit_outbox();

    const Options options_;
    std::unique_ptr<Committer> committer_;
    std::vector<OutboxEntry> outbox_;
    std::size_t outbox_bytes_ = 0;
    std::size_t uncounted_ = 0;                                         // committed since the last commit() that returned
    std::unordered_map<std::uint64_t, std::optional<Attempt>> events_;  // chunks and statuses on their way, by tag
    std::uint64_t next_tag_ = 0;
    std::set<Attempt> broken_streams_;  // of which a chunk was refused
    SinkCounters counters_;
    KafkaProducer producer_;  // of events; last: its deliveries write to the members above
};

}  // namespace lorry::consumer
