// Converts librdkafka's records to ours and classifies its error codes. Included through connection.h by everything that talks to
// librdkafka.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "consumer/kafka/handles.h"
#include "consumer/kafka/unreadable.h"
#include "schema/codec.h"

namespace lorry::consumer {

// Converts a consumed message; the topic and all bytes are copied.
schema::JobRecord record_of(const rd_kafka_message_t& message);

// One record to produce. The views must live until the call returns (the bytes are copied).
struct Produce {
    std::string_view topic;
    std::optional<std::int32_t> partition;  // nullopt: by key
    std::optional<std::string_view> key;
    std::optional<std::string_view> value;
    std::span<const schema::Header> headers;
    std::uint64_t tag = 0;  // returned with the delivery report
};
// Passes the record to the client. Errors are librdkafka's (queue full, record too large).
rd_kafka_resp_err_t produce(rd_kafka_t* client, const Produce& record);

// The end offsets of the records that a producer delivered, by partition.
class DeliveredEnds {
public:
    // Takes a delivery report. A record whose acknowledgement was lost has no offset and does not count.
    void note(const rd_kafka_message_t& report);
    // One past the last delivered record; 0: none.
    std::int64_t of(const std::string& topic, std::int32_t partition) const;
    const std::map<std::pair<std::string, std::int32_t>, std::int64_t>& all() const { return ends_; }

private:
    std::map<std::pair<std::string, std::int32_t>, std::int64_t> ends_;
};

// True for errors that concern only this record: another record may succeed.
bool is_record_error(rd_kafka_resp_err_t error);
// True for errors caused by a missing right or a limit: nothing will succeed until somebody changes that.
bool is_configuration_error(rd_kafka_resp_err_t error);
// The record that blocks the message's partition, if its error says that the record at `position`, or the next one,
// cannot be read. The client tries again.
std::optional<UnreadableRecord> unreadable_record(const rd_kafka_message_t& message, std::int64_t position);
// True for errors that say a topic or partition does not exist. Brokers that are starting may say so of a topic they do not know yet
// (github.com/confluentinc/librdkafka/issues/3513), so for a topic that existed this is believed only after a while.
bool is_missing_topic(rd_kafka_resp_err_t error);
// What to do about the error, to append to a message; empty if there is nothing specific to say.
std::string advice_for(rd_kafka_resp_err_t error, std::string_view topic);
// The error's text followed by advice_for().
std::string explain(rd_kafka_resp_err_t error, std::string_view topic);

}  // namespace lorry::consumer
