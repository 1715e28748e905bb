// One transactional producer (KIP-98), with its errors classified by what an exactly-once publisher must do next. Used by the transactional
// committer and leftovers; one thread.
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

// How a step of a transaction ended. A missing right or a broker limit is not among these: it throws. Offsets that are refused because a
// second worker uses our member name are `aborting`: the consumer learns of that worker and ends this one.
enum class StepEnd : std::uint8_t {
    done,
    aborting,  // this transaction cannot be committed; after abort() the next one can begin
    fenced,    // the same transactional id was opened elsewhere, or the brokers ended the transaction at its timeout
    unknown,   // it cannot be seen from here what the brokers did, or may still do, with a request in flight
};

struct StepResult {
    StepEnd end = StepEnd::done;
    std::string reason = {};
    bool timed_out = false;
};

// After `fenced` or `unknown`, destroy it. When the next one is opened with the same id, the brokers finish or abort what is open and
// refuse whatever the old one still has in flight.
class TransactionalProducer {
public:
    struct Options {
        std::string id;                             // transactional.id: unique in the cluster
        std::chrono::milliseconds timeout{10'000};  // the brokers abort a transaction after this time
        ProducerLimits limits;
    };
    explicit TransactionalProducer(const KafkaConfig& config, Options options);
    TransactionalProducer(const TransactionalProducer&) = delete;
    TransactionalProducer& operator=(const TransactionalProducer&) = delete;

    // Must be the first call. Waits until the coordinator has ended what an earlier producer with this id left open, at most for
    // `deadline`.
    StepResult open(std::chrono::milliseconds deadline);
    StepResult begin(std::size_t tags);
    // Sends one record; waits while the queue is full. An error either concerns only this record (is_record_error) or makes
    // finish_sending() fail.
    rd_kafka_resp_err_t send(const Produce& record);
    // Waits until each record was acknowledged or refused; see errors(), by tag.
    StepResult finish_sending();
    const std::vector<rd_kafka_resp_err_t>& errors() const { return errors_; }
    const DeliveredEnds& delivered() const { return delivered_; }
    StepResult send_offsets(const rd_kafka_consumer_group_metadata_t* group, const rd_kafka_topic_partition_list_t* offsets);
    StepResult commit();
    StepResult abort();

    // True when a request of this producer's transactions ended in a timeout or a lost connection: the client sent it again, but the first
    // one may still arrive and affect a later transaction. Replace the producer before that one.
    bool has_stray_request() const { return stray_request_; }
    // True when a connection to a broker that was up went down: check what the brokers did with our last transaction meanwhile
    // (leftovers.h). A broker that was never reached does not count.
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
    std::vector<rd_kafka_resp_err_t> errors_;  // by tag: the first error of each
    DeliveredEnds delivered_;
    std::set<std::string, std::less<>> topics_;  // topics that this transaction writes to
    std::atomic<bool> is_committing_ = false;    // read by the client's threads
    // Set by the client's threads.
    std::atomic<bool> stray_request_ = false;
    std::atomic<bool> lost_broker_ = false;
    std::mutex brokers_mutex_;
    std::set<std::pair<std::string, int>> brokers_up_;  // guarded by brokers_mutex_: name and port
    KafkaConnection connection_;                        // last: its callbacks write to the members above
};

}  // namespace lorry::consumer
