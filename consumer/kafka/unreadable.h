// Records that the client cannot read: damaged, or compressed with an unknown codec. They block their partition. Noted by KafkaSource and
// RecordReader, reported by /healthz and metrics, given up by `lorry offsets skip`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lorry::consumer {

struct KafkaConfig;

struct UnreadableRecord {
    std::string topic;
    std::int32_t partition = 0;
    std::int64_t offset = 0;  // the first record that cannot be read
    std::int64_t batch = 0;   // where the client says that its batch begins; the records of a batch share this
    std::string codec;        // the codec that failed: "zstd"; "unknown": not one of Kafka's; "none": the batch is damaged otherwise
    std::string reason;       // the client's words, with the codec's name
};

// What to do about a record of the jobs topic that stays unreadable.
std::string advice_for(const UnreadableRecord& record);

// Offsets that cannot be read, because their batch cannot.
struct UnreadableBatch {
    std::int32_t partition = 0;
    std::int64_t first = 0;
    std::int64_t end = 0;  // the first offset after the batch
    std::string reason;
};

// The batch that blocks a reader at `offset` of the partition; nullopt: a record can be read there, or there is none. `log_end` is where
// the log ends. Reads the log a few dozen times. Throws KafkaError when the brokers do not answer.
std::optional<UnreadableBatch> unreadable_batch_at(const KafkaConfig& config, const std::string& topic, std::int32_t partition,
                                                   std::int64_t offset, std::int64_t log_end);

}  // namespace lorry::consumer
