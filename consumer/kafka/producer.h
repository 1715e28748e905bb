// An idempotent producer whose delivery reports arrive in order of calls, never inside librdkafka's callback. Base of the sink and of the
// program's own commands; included only by consumer/kafka_*.cpp. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "consumer/kafka/connection.h"
#include "schema/check.h"

namespace lorry::consumer {

class KafkaProducer {
public:
    struct Delivery {
        std::uint64_t tag = 0;
        rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
    };
    struct Options {
        ProducerLimits limits;
        std::size_t bytes_in_flight_max = 64u << 20;
        std::function<void(const Delivery&)> on_delivery = {};  // called from send, poll and wait_all
    };

    KafkaProducer(const KafkaConfig& config, Options options);
    KafkaProducer(const KafkaProducer&) = delete;
    KafkaProducer& operator=(const KafkaProducer&) = delete;

    KafkaConnection& connection() { return connection_; }

    // Hands over one record; waits while too much is in flight. The error is one of this record (is_record_error), it then has no
    // delivery. Throws KafkaError when a right is missing, or nothing moves or the topic is not there for deadline_later.
    Expected<void, rd_kafka_resp_err_t> send(const Produce& record);
    // Serves deliveries, for up to `timeout` while there is nothing to do. Throws KafkaError when a record was not delivered for a reason
    // that is not its own.
    void poll(std::chrono::milliseconds timeout);
    // Until every record was acknowledged or refused; throws as send() does.
    void wait_all(std::string_view what);
    std::size_t in_flight() const { return in_flight_; }
    const DeliveredEnds& delivered() const { return delivered_; }

private:
    static void on_report(rd_kafka_t* client, const rd_kafka_message_t* message, void* opaque);
    void dispatch();

    const Options options_;
    std::size_t in_flight_ = 0;
    struct Report {
        Delivery delivery;
        std::string topic;  // of failures
    };
    std::vector<Report> reports_;  // arrived, not yet dispatched
    DeliveredEnds delivered_;
    KafkaConnection connection_;  // last: its callbacks write to the members above
};

}  // namespace lorry::consumer
