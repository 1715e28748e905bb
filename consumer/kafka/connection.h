// One librdkafka client with what all of ours share: how it is configured, what it last complained about, and waits with a deadline
// that say so. Base of consumers, producers, readers and the admin client; included only by consumer/kafka_*.cpp.
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

using TopicPartitions = std::vector<std::pair<std::string, std::int32_t>>;
// Partitions 0 to count - 1.
TopicPartitions partitions_of(const std::string& topic, std::int32_t count);
// As librdkafka takes them, without offsets.
PartitionListHandle list_of(const TopicPartitions& partitions);
// Of an answer about partitions: the first one's error that is not `tolerated`.
rd_kafka_resp_err_t first_error(const rd_kafka_topic_partition_list_t& answers, rd_kafka_resp_err_t tolerated = RD_KAFKA_RESP_ERR_NO_ERROR);

// Ours first, then the user's table, then `settings`, which win. Throws KafkaConfigError for what librdkafka refuses.
KafkaConfHandle make_conf(const KafkaConfig& config, const KafkaSettings& settings);

// What the topics of a producer take: records as large as the largest limit, and batches as small as the smallest, because a broker
// checks a topic's max.message.bytes against whole batches.
struct ProducerLimits {
    std::size_t record_bytes_max = 1u << 20;
    std::size_t batch_bytes_max = 900'000;
};
ProducerLimits producer_limits(std::initializer_list<std::size_t> topics);
// What all producers share, beside make_conf.
KafkaSettings producer_settings(const ProducerLimits& limits);

// What the client last said was wrong: librdkafka only logs a wrong password or an unreachable broker. Any thread.
class KafkaComplaints {
public:
    // True if it is worth a line of the log: while brokers are away, there are several a second.
    bool note(std::string text);
    std::string last() const;  // "none" at first

private:
    mutable std::mutex mutex_;
    std::string last_ = "none";                                    // guarded by mutex_
    std::optional<std::chrono::steady_clock::time_point> spoken_;  // guarded by mutex_
};

// What callbacks get as their opaque pointer.
struct KafkaContext {
    KafkaComplaints complaints;
    std::atomic<bool> all_down = false;  // no broker could be reached, as of the last event
    void* owner = nullptr;               // of the callbacks that `prepare` set
};

class KafkaConnection {
public:
    enum class Kind : std::uint8_t { consumer, producer };

    // `prepare` may set callbacks on the configuration; they find `owner` in their KafkaContext. Nothing is sent yet.
    KafkaConnection(const KafkaConfig& config, Kind kind, const KafkaSettings& settings,
                    const std::function<void(rd_kafka_conf_t*)>& prepare = {}, void* owner = nullptr);

    rd_kafka_t* handle() const { return handle_.get(); }
    const KafkaConfig& config() const { return config_; }
    KafkaComplaints& complaints() const { return context_->complaints; }

    // Waits until a broker answered; throws KafkaError at deadline_start with brokers, last complaint and what to do.
    void wait_ready() const;
    // Metadata of that topic, or of all. Retries until deadline_start.
    MetadataHandle metadata(const std::string& topic) const;
    // How many partitions the topic has; nullopt: it does not exist. Retries until deadline_start.
    std::optional<std::int32_t> partition_count(const std::string& topic) const;
    // The same, but throws KafkaError that says how to create it.
    std::int32_t required_partition_count(const std::string& topic) const;
    // One try, a second at most; nullopt: no answer, or no such topic.
    std::optional<std::int32_t> try_partition_count(const std::string& topic) const;
    // How many partitions a topic has that somebody knows to be there: brokers learn of new ones, and of all when they come up, one after
    // the other. Throws KafkaError at deadline_start, which says how to create it.
    std::int32_t wait_for_topic(const std::string& topic) const;
    // Empty where brokers give none. Asks until it was answered once: a consumer's metadata requests are for the thread that polls it.
    std::string cluster_id() const;
    // The id of a topic that exists; empty where brokers give none. Retries until deadline_start.
    std::string topic_id(const std::string& topic) const;
    // The same until `deadline` has passed. nullopt: told to stop, which is noticed between tries. Safe from any thread.
    std::optional<std::string> topic_id(const std::string& topic, std::chrono::milliseconds deadline, const std::stop_token& stop) const;
    // The topic's settings, as Kafka names them; empty where the broker does not say (no right, or it is the embedded one).
    std::map<std::string, std::string> topic_settings(const std::string& topic) const;
    struct Watermarks {
        std::int64_t first = 0;  // the oldest offset
        std::int64_t end = 0;    // the next one to be written (for readers of committed records: the first uncommitted)
    };
    // Asks the partition's leader; retries until `deadline` has passed, then throws KafkaError. nullopt: told to stop, which is noticed
    // between tries. Safe from any thread.
    std::optional<Watermarks> watermarks(const std::string& topic, std::int32_t partition, std::chrono::milliseconds deadline,
                                         const std::stop_token& stop) const;
    Watermarks watermarks(const std::string& topic, std::int32_t partition, std::chrono::milliseconds deadline) const;

    // One try, a second at most.
    std::optional<Watermarks> try_watermarks(const std::string& topic, std::int32_t partition) const;

    // To be called now and then by the thread that polls: throws KafkaError when no broker was reachable for deadline_later. Costs
    // nothing while they are; else asks (for a second at most) once in five seconds.
    void check_reachable();
    // As of the last check_reachable(), by the same thread.
    bool is_away() const { return down_since_.has_value(); }
    // The exception for brokers that were away for too long while doing `what`.
    KafkaError away(std::string_view what, std::chrono::milliseconds waited) const;
    // The exception for an error that only somebody else can mend, while doing `what`.
    KafkaError refused(std::string_view what, rd_kafka_resp_err_t error, std::string_view topic) const;
    // Throws KafkaError if the client has hit an error from which it cannot recover.
    void check_fatal() const;

private:
    KafkaConfig config_;
    std::optional<std::chrono::steady_clock::time_point> down_since_;  // the polling thread's
    std::chrono::steady_clock::time_point probe_next_;                 // the polling thread's
    mutable std::mutex cluster_id_mutex_;
    mutable std::optional<std::string> cluster_id_;  // guarded by cluster_id_mutex_: what brokers answered, perhaps that there is none
    std::unique_ptr<KafkaContext> context_;          // callbacks point at it, so it does not move; outlives the handle
    KafkaClientHandle handle_;
};

// Tries of something that brokers may refuse for a while, with growing pauses between them, until a deadline.
class Retry {
public:
    // `what` is tried, as the exception says it. `connection` must outlive this.
    Retry(const KafkaConnection& connection, std::string what, std::chrono::milliseconds deadline, std::stop_token stop = {});

    // After a try that failed, for this reason: waits, and says so if that takes long. False: told to stop. Throws KafkaError (away()) when
    // the deadline has passed.
    bool again(std::string_view reason = {});
    // How long a try may take: what is left until the deadline, or `most`; a millisecond at least.
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

// The embedded broker says who it is by its cluster id.
bool is_embedded_cluster(std::string_view cluster_id);

}  // namespace lorry::consumer
