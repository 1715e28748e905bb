// An idempotent producer. It calls back for each record from the caller's thread, never inside librdkafka's callback. Used by the sink
// (chunks and statuses), the at-least-once committer and client.h. One thread.
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
        std::function<void(const Delivery&)> on_delivery = {};  // called from send(), poll() and wait_all()
    };

    KafkaProducer(const KafkaConfig& config, Options options);
    KafkaProducer(const KafkaProducer&) = delete;
    KafkaProducer& operator=(const KafkaProducer&) = delete;

    KafkaConnection& connection() { return connection_; }

    // Sends one record; waits while too much is in flight. A returned error concerns this record only (is_record_error), which then has no
    // delivery report. Throws KafkaError when a right is missing, or when nothing moves or the topic is missing for deadline_later. With a
    // pace, waits for its readers as well.
    Expected<void, rd_kafka_resp_err_t> send(const Produce& record);
    // Serves delivery reports, for up to `timeout` if there is nothing to do. Throws KafkaError when a record was not delivered for a
    // reason that does not concern this record alone.
    void poll(std::chrono::milliseconds timeout);
    // Waits until every record was acknowledged or refused. Throws like send().
    void wait_all(std::string_view what);
    std::size_t in_flight() const { return in_flight_; }
    const DeliveredEnds& delivered() const { return delivered_; }

private:
    static void on_report(rd_kafka_t* client, const rd_kafka_message_t* message, void* opaque);
    void dispatch();
    void keep_pace(const Produce& record);

    const Options options_;
    std::size_t in_flight_ = 0;
    std::size_t bytes_ahead_ = 0;  // with a pace: that were sent since all was read
    struct Report {
        Delivery delivery;
        std::string topic;  // only for failures
    };
    std::vector<Report> reports_;  // arrived, not yet dispatched
    DeliveredEnds delivered_;
    KafkaConnection connection_;  // last: its callbacks write to the members above
};

}  // namespace lorry::consumer
