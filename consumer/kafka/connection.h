// One librdkafka client and what all of ours share: configuration, the last complaint, and waits with a deadline whose errors say what
// failed. Used by everything in consumer/kafka/ that talks to the brokers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consumer/backoff.h"
#include "consumer/kafka/config.h"
#include "consumer/kafka/handles.h"
#include "consumer/kafka/records.h"

namespace lorry::consumer {

using KafkaSettings = std::vector<std::pair<std::string, std::string>>;

using TopicPartition = std::pair<std::string, std::int32_t>;
using TopicPartitions = std::vector<TopicPartition>;
// Partitions 0 to count - 1.
TopicPartitions partitions_of(const std::string& topic, std::int32_t count);
// As librdkafka's list, without offsets.
PartitionListHandle list_of(const TopicPartitions& partitions);
// The first error in an answer about partitions, other than `tolerated`.
rd_kafka_resp_err_t first_error(const rd_kafka_topic_partition_list_t& answers, rd_kafka_resp_err_t tolerated = RD_KAFKA_RESP_ERR_NO_ERROR);

// Applies our defaults, then the user's table, then `settings`; later values win. Throws KafkaConfigError for what librdkafka rejects.
KafkaConfHandle make_conf(const KafkaConfig& config, const KafkaSettings& settings);

// Limits of a producer that writes to several topics: records may be as large as the largest limit, batches only as large as the smallest,
// because a broker checks a topic's max.message.bytes against whole batches.
struct ProducerLimits {
    std::size_t record_bytes_max = 1u << 20;
    std::size_t batch_bytes_max = 900'000;
};
ProducerLimits producer_limits(std::initializer_list<std::size_t> topics);
// Settings that all producers share, in addition to make_conf.
KafkaSettings producer_settings(const ProducerLimits& limits);

// The client's last complaint: librdkafka only logs a wrong password or an unreachable broker. Any thread.
class KafkaComplaints {
public:
    // True if it should be logged: while brokers are away, there are several complaints a second.
    bool note(std::string text);
    std::string last() const;  // "none" before the first complaint

private:
    mutable std::mutex mutex_;
    std::string last_ = "none";                                    // guarded by mutex_
    std::optional<std::chrono::steady_clock::time_point> spoken_;  // guarded by mutex_
};

// What librdkafka's callbacks get as their opaque pointer.
struct KafkaContext {
    KafkaComplaints complaints;
    std::atomic<bool> all_down = false;  // as of the last event, no broker could be reached
    void* owner = nullptr;               // for the callbacks that `prepare` set
};

class KafkaConnection {
public:
    enum class Kind : std::uint8_t { consumer, producer };

    // `prepare` may set callbacks on the configuration; they find `owner` in their KafkaContext. Sends nothing yet.
    KafkaConnection(const KafkaConfig& config, Kind kind, const KafkaSettings& settings,
                    const std::function<void(rd_kafka_conf_t*)>& prepare = {}, void* owner = nullptr);

    rd_kafka_t* handle() const { return handle_.get(); }
    const KafkaConfig& config() const { return config_; }
    KafkaComplaints& complaints() const { return context_->complaints; }

    // Waits until a broker has answered. Throws KafkaError at deadline_start with the brokers, the last complaint and what to do.
    void wait_ready() const;
    // Metadata of that topic, or of all topics if it is empty. Retries until deadline_start.
    MetadataHandle metadata(const std::string& topic) const;
    // The topic's number of partitions; nullopt: it does not exist. Retries until deadline_start.
    std::optional<std::int32_t> partition_count(const std::string& topic) const;
    // The same, but throws a KafkaError that says how to create the topic if it does not exist.
    std::int32_t required_partition_count(const std::string& topic) const;
    // One attempt of at most one second. nullopt: no answer, or no such topic.
    std::optional<std::int32_t> try_partition_count(const std::string& topic) const;
    // Number of partitions of a topic that is known to exist: brokers learn of new topics, and of all topics when they start, one after the
    // other. Throws a KafkaError at deadline_start that says how to create it.
    std::int32_t wait_for_topic(const std::string& topic) const;
    // Empty if the brokers have none. The answer is kept: only the thread that polls a consumer may request its metadata.
    std::string cluster_id() const;
    // The id of an existing topic; empty if brokers have no topic ids. Retries until deadline_start.
    std::string topic_id(const std::string& topic) const;
    // The same, but retries for `deadline`. nullopt: a stop was requested, which is checked between attempts. Safe from any thread.
    std::optional<std::string> topic_id(const std::string& topic, std::chrono::milliseconds deadline, const std::stop_token& stop) const;
    // The topic's settings under Kafka's names; empty if the broker does not say (no right, or it is the embedded broker).
    std::map<std::string, std::string> topic_settings(const std::string& topic) const;
    // The largest response that this client takes, in bytes.
    std::size_t receive_bytes_max() const;
    struct Watermarks {
        std::int64_t first = 0;  // the oldest offset
        std::int64_t end = 0;    // the next offset to be written (for readers of committed records: the first uncommitted one)
    };
    // Asks the partition's leader. Retries for `deadline`, then throws KafkaError. nullopt: a stop was requested, which is checked between
    // attempts. Safe from any thread.
    std::optional<Watermarks> watermarks(const std::string& topic, std::int32_t partition, std::chrono::milliseconds deadline,
                                         const std::stop_token& stop) const;
    Watermarks watermarks(const std::string& topic, std::int32_t partition, std::chrono::milliseconds deadline) const;

    // One attempt of at most one second.
    std::optional<Watermarks> try_watermarks(const std::string& topic, std::int32_t partition) const;

    // The polling thread calls this regularly. Throws KafkaError when no broker was reachable for deadline_later. Costs nothing while
    // brokers are reachable; otherwise asks them every five seconds, for a second at most.
    void check_reachable();
    // As of the last check_reachable(); for the same thread.
    bool is_away() const { return down_since_.has_value(); }
    // The exception to throw when brokers were away for too long during `what`.
    KafkaAway away(std::string_view what, std::chrono::milliseconds waited) const;
    // The exception to throw for an error during `what` that only an operator can fix.
    KafkaError refused(std::string_view what, rd_kafka_resp_err_t error, std::string_view topic) const;
    // Throws KafkaError if the client has hit an error from which it cannot recover.
    void check_fatal() const;

private:
    KafkaConfig config_;
    std::optional<std::chrono::steady_clock::time_point> down_since_;  // the polling thread's
    std::chrono::steady_clock::time_point probe_next_;                 // the polling thread's
    mutable std::mutex cluster_id_mutex_;
    mutable std::optional<std::string> cluster_id_;  // guarded by cluster_id_mutex_; what the brokers answered, perhaps that they have none
    std::unique_ptr<KafkaContext> context_;          // callbacks point at it, so it does not move; outlives the handle
    KafkaClientHandle handle_;
};

// Retries an operation that brokers may refuse for a while, with growing pauses, until a deadline.
class Retry {
public:
    // `what` describes the operation in messages. `connection` must outlive this.
    Retry(const KafkaConnection& connection, std::string what, std::chrono::milliseconds deadline, std::stop_token stop = {});

    // Call after a failed attempt, with the reason: pauses, and logs once if the retries take long. Returns false when a stop was
    // requested. Throws KafkaError (away()) when the deadline has passed.
    bool again(std::string_view reason = {});
    // Timeout for the next attempt: what is left until the deadline, at most `most`, at least a millisecond.
    std::chrono::milliseconds time_for_try(std::chrono::milliseconds most) const;

private:
    const KafkaConnection& connection_;
    const std::string what_;
    const std::chrono::milliseconds deadline_;
    const std::stop_token stop_;
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    Backoff backoff_;
    bool has_told_ = false;
};

// Recognizes the embedded broker by its cluster id.
bool is_embedded_cluster(std::string_view cluster_id);

}  // namespace lorry::consumer
