// One transactional producer (KIP-98) and what its errors mean for whoever has to publish exactly once. Used by the transactional
// committer only; one thread.
#pragma once

#include <librdkafka/rdkafka.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "consumer/kafka/connection.h"

namespace lorry::consumer {

// How a step of a transaction ended. A right that is missing, or a limit of the brokers in the way, is none of these: it throws. Offsets
// that are refused because of a second worker under our member name are `aborting`: the consumer hears of that worker, and ends us.
enum class StepEnd : std::uint8_t {
    done,
    aborting,  // nothing of this transaction may be committed; after abort() the next one can begin
    fenced,    // somebody opened the same transactional id, or the brokers ended the transaction at its time-out
    unknown,   // what the brokers did, or may still do, with a request on its way cannot be seen from here
};

struct StepResult {
    StepEnd end = StepEnd::done;
    std::string reason = {};
    bool timed_out = false;
};

// After `fenced` or `unknown` it must be destroyed; one that is opened under the same id makes the brokers finish or abort what is open
// and refuse whatever the old one still has on its way.
class TransactionalProducer {
public:
    struct Options {
        std::string id;                             // transactional.id: cluster-wide
        std::chrono::milliseconds timeout{10'000};  // of a transaction: the brokers abort it then
        ProducerLimits limits;
    };
    explicit TransactionalProducer(const KafkaConfig& config, Options options);
    TransactionalProducer(const TransactionalProducer&) = delete;
    TransactionalProducer& operator=(const TransactionalProducer&) = delete;

    // First call; waits until the coordinator has ended what an earlier producer of this id left open, until `deadline` at most.
    StepResult open(std::chrono::milliseconds deadline);
    StepResult begin(std::size_t tags);
    // One record; waits while the queue is full. An error is this record's (is_record_error) or makes finish_sending() fail.
    rd_kafka_resp_err_t send(const Produce& record);
    // Until each record was acknowledged or refused: errors() by tag.
    StepResult finish_sending();
    const std::vector<rd_kafka_resp_err_t>& errors() const { return errors_; }
    const DeliveredEnds& delivered() const { return delivered_; }
    StepResult send_offsets(const rd_kafka_consumer_group_metadata_t* group, const rd_kafka_topic_partition_list_t* offsets);
    StepResult commit();
    StepResult abort();

    // A request of this producer's transactions ended in a time-out or a lost connection: the client sent it again, but the first one may
    // still arrive and act upon a later transaction. Before that one, this producer must be replaced.
    bool has_stray_request() const { return stray_request_; }
    // A connection to a broker that was up went down: what the brokers did meanwhile with our last transaction has to be looked at
    // (leftovers.h). A broker that cannot be reached from the start is none of these.
    bool has_lost_broker() const { return lost_broker_; }

private:
    static rd_kafka_resp_err_t on_new(rd_kafka_t* client, const rd_kafka_conf_t*, void* opaque, char*, std::size_t);
    static rd_kafka_resp_err_t on_sent(rd_kafka_t*, int, const char*, std::int32_t, std::int16_t api, std::int16_t, std::int32_t,
                                       std::size_t, void* opaque);
    static rd_kafka_resp_err_t on_response(rd_kafka_t*, int, const char*, std::int32_t, std::int16_t api, std::int16_t, std::int32_t,
                                           std::size_t, std::int64_t, rd_kafka_resp_err_t error, void* opaque);
    static rd_kafka_resp_err_t on_broker_state(rd_kafka_t*, std::int32_t broker, const char*, const char* name, int port, const char* state,
                                               void* opaque);
    static void on_report(rd_kafka_t* client, const rd_kafka_message_t* message, void* opaque);
    template <typename Call>
    StepResult step(const char* what, std::chrono::milliseconds deadline, const Call& call);
    StepResult result_of(const char* what, const rd_kafka_error_t& error) const;

    const Options options_;
    std::size_t in_flight_ = 0;
    std::vector<rd_kafka_resp_err_t> errors_;  // by tag: the first of each
    DeliveredEnds delivered_;
    std::set<std::string, std::less<>> topics_;  // that this transaction writes to
    std::atomic<bool> is_committing_ = false;    // read by the client's threads
    // Set by the client's threads.
    std::atomic<bool> stray_request_ = false;
    std::atomic<bool> lost_broker_ = false;
    std::mutex brokers_mutex_;
    std::set<std::pair<std::string, int>> brokers_up_;  // guarded by brokers_mutex_: name and port
    KafkaConnection connection_;                        // last: its callbacks write to the members above
};

}  // namespace lorry::consumer
