// librdkafka's records and error codes in our terms. Included only by consumer/kafka_*.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "consumer/kafka/handles.h"
#include "schema/codec.h"

namespace lorry::consumer {

// A consumed message as ours; `topic` and value bytes are copied.
schema::JobRecord record_of(const rd_kafka_message_t& message);

// One record to produce. The views must live until the call returns (the bytes are copied).
struct Produce {
    std::string_view topic;
    std::optional<std::int32_t> partition;  // nullopt: by key
    std::optional<std::string_view> key;
    std::optional<std::string_view> value;
    std::span<const schema::Header> headers;
    std::uint64_t tag = 0;  // comes back with the delivery report
};
// Hands the record to the client; the error is librdkafka's (queue full, too large).
rd_kafka_resp_err_t produce(rd_kafka_t* client, const Produce& record);

// Where the records that a producer delivered ended, by partition.
class DeliveredEnds {
public:
    // Of a delivery report. A record whose acknowledgement was lost on its way has no offset, and does not count.
    void note(const rd_kafka_message_t& report);
    // Behind the last one; 0: none.
    std::int64_t of(const std::string& topic, std::int32_t partition) const;

private:
    std::map<std::pair<std::string, std::int32_t>, std::int64_t> ends_;
};

// True for errors that are about this one record: another one may pass.
bool is_record_error(rd_kafka_resp_err_t error);
// True for errors that a right is missing or a limit is in the way: nothing will pass until somebody changes that.
bool is_configuration_error(rd_kafka_resp_err_t error);
// True for errors that a topic or partition is not there. Brokers that come up may say so of one that they do not know yet
// (github.com/confluentinc/librdkafka/issues/3513), so of a topic that was there it is believed only for a time.
bool is_missing_topic(rd_kafka_resp_err_t error);
// What to do about it, for messages; empty when there is nothing special to say.
std::string advice_for(rd_kafka_resp_err_t error, std::string_view topic);
// The error's text, and what to do about it.
std::string explain(rd_kafka_resp_err_t error, std::string_view topic);

}  // namespace lorry::consumer
