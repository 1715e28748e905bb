// Conversions between librdkafka's records and ours, and the meaning of its error codes.
#include "consumer/kafka/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "consumer/commit_metadata.h"
#include "schema/codec.h"

namespace lorry::consumer {

schema::JobRecord record_of(const rd_kafka_message_t& message) {
    schema::JobRecord record;
    record.source = {rd_kafka_topic_name(message.rkt), message.partition, message.offset};
    if (message.key != nullptr) record.key.emplace(static_cast<const char*>(message.key), message.key_len);
    if (message.payload != nullptr) record.value.emplace(static_cast<const char*>(message.payload), message.len);
    rd_kafka_timestamp_type_t type = RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
    const std::int64_t timestamp = rd_kafka_message_timestamp(&message, &type);
    if (type != RD_KAFKA_TIMESTAMP_NOT_AVAILABLE) record.timestamp = schema::timestamp_of(timestamp);
    rd_kafka_headers_t* headers = nullptr;
    const rd_kafka_resp_err_t error = rd_kafka_message_headers(&message, &headers);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
        const char* name = nullptr;
        const void* value = nullptr;
        std::size_t size = 0;
        // All that Lorry writes, and enough to refuse a job that has more; many readers hold a thousand records at a time.
        for (std::size_t i = 0; i < schema::job_headers_max + schema::added_headers_max; ++i) {
            if (rd_kafka_header_get_all(headers, i, &name, &value, &size) != RD_KAFKA_RESP_ERR_NO_ERROR) break;
            record.headers.emplace_back(name, value == nullptr ? std::string() : std::string(static_cast<const char*>(value), size));
        }
    } else if (error != RD_KAFKA_RESP_ERR__NOENT) {
        record.headers.resize(schema::job_headers_max + 1);  // the client reads 100,000 at most: too many for a job
    }
    return record;
}

rd_kafka_resp_err_t produce(rd_kafka_t* client, const Produce& record) {
    const std::string topic(record.topic);
    HeadersHandle headers;
    if (!record.headers.empty()) {
        headers.reset(rd_kafka_headers_new(record.headers.size()));
        for (const auto& [name, value] : record.headers) {
            rd_kafka_header_add(headers.get(), name.data(), static_cast<ssize_t>(name.size()), value.data(),
                                static_cast<ssize_t>(value.size()));
        }
    }
    // librdkafka takes void* for bytes that it only copies.
    const auto bytes = [](const std::optional<std::string_view>& view) { return view ? const_cast<char*>(view->data()) : nullptr; };
    const auto size = [](const std::optional<std::string_view>& view) { return view ? view->size() : 0; };
    std::array<rd_kafka_vu_t, 7> arguments{};
    std::size_t count = 0;
    const auto add = [&](rd_kafka_vtype_t type) -> rd_kafka_vu_t& {
        arguments[count].vtype = type;
        return arguments[count++];
    };
    add(RD_KAFKA_VTYPE_TOPIC).u.cstr = topic.c_str();
    add(RD_KAFKA_VTYPE_PARTITION).u.i32 = record.partition.value_or(RD_KAFKA_PARTITION_UA);
    add(RD_KAFKA_VTYPE_MSGFLAGS).u.i = RD_KAFKA_MSG_F_COPY;
    if (record.key) add(RD_KAFKA_VTYPE_KEY).u.mem = {bytes(record.key), size(record.key)};
    if (record.value) add(RD_KAFKA_VTYPE_VALUE).u.mem = {bytes(record.value), size(record.value)};
    if (headers) add(RD_KAFKA_VTYPE_HEADERS).u.headers = headers.get();
    add(RD_KAFKA_VTYPE_OPAQUE).u.ptr = reinterpret_cast<void*>(record.tag);  // NOLINT: a number rides in the pointer
    const ErrorHandle error(rd_kafka_produceva(client, arguments.data(), count));
    if (error) return rd_kafka_error_code(error.get());
    static_cast<void>(headers.release());  // the client owns them now
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

void DeliveredEnds::note(const rd_kafka_message_t& report) {
    if (report.err != RD_KAFKA_RESP_ERR_NO_ERROR || report.offset < 0) return;
    std::int64_t& end = ends_[{rd_kafka_topic_name(report.rkt), report.partition}];
    end = std::max(end, report.offset + 1);
}

std::int64_t DeliveredEnds::of(const std::string& topic, std::int32_t partition) const {
    const auto found = ends_.find({topic, partition});
    return found == ends_.end() ? 0 : found->second;
}

bool is_record_error(rd_kafka_resp_err_t error) {
    switch (error) {
        case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
        case RD_KAFKA_RESP_ERR_INVALID_MSG:
        case RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE:
        case RD_KAFKA_RESP_ERR_INVALID_RECORD:
        case RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP:
        case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE: return true;
        default: return false;
    }
}

bool is_configuration_error(rd_kafka_resp_err_t error) {
    switch (error) {
        case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
        case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
        case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
        case RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
        case RD_KAFKA_RESP_ERR_INVALID_GROUP_ID:
        case RD_KAFKA_RESP_ERR_INVALID_SESSION_TIMEOUT:
        case RD_KAFKA_RESP_ERR_INCONSISTENT_GROUP_PROTOCOL:
        case RD_KAFKA_RESP_ERR_GROUP_MAX_SIZE_REACHED:
        case RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE:
        case RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION:
        case RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE: return true;
        default: return false;
    }
}

std::optional<UnreadableRecord> unreadable_record(const rd_kafka_message_t& message, std::int64_t position) {
    switch (message.err) {
        case RD_KAFKA_RESP_ERR__BAD_MSG:
        case RD_KAFKA_RESP_ERR__BAD_COMPRESSION:
        case RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED:
        case RD_KAFKA_RESP_ERR_INVALID_MSG: break;
        default: return std::nullopt;
    }
    if (message.rkt == nullptr) return std::nullopt;
    // Source: Kafka's record batch, bits 0 to 2 of its attributes.
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> codecs = {
        {{"codec 0x1", "gzip"}, {"codec 0x2", "snappy"}, {"codec 0x3", "lz4"}, {"codec 0x4", "zstd"}}};
    std::string reason = rd_kafka_message_errstr(&message);
    std::string codec = reason.find("codec 0x") == std::string::npos ? "none" : "unknown";
    for (const auto& [number, name] : codecs) {
        const std::size_t at = reason.find(number);
        if (at == std::string::npos) continue;
        reason.insert(at + number.size(), fmt::format(", {}", name));
        codec = name;
    }
    if (message.err == RD_KAFKA_RESP_ERR__BAD_COMPRESSION)
        reason += " (or it unpacks to more than `receive.message.max.bytes`, which can be set in [kafka])";
    // The client names the batch's first offset, or where it was reading, or none.
    const std::int64_t batch = message.offset >= 0 ? message.offset : position;
    return UnreadableRecord{.topic = rd_kafka_topic_name(message.rkt),
                            .partition = message.partition,
                            .offset = std::max(position, batch),
                            .batch = batch,
                            .codec = std::move(codec),
                            .reason = std::move(reason)};
}

bool is_missing_topic(rd_kafka_resp_err_t error) {
    switch (error) {
        case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
        case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
        case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION: return true;
        default: return false;
    }
}

std::string advice_for(rd_kafka_resp_err_t error, std::string_view topic) {
    switch (error) {
        case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
        case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
        case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
            return fmt::format(": create it with `lorry topics create`, or set the prefix that {} belongs to", topic);
        case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
        case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
        case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
        case RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return ": this user lacks the right; `lorry topics create --print-acls` prints what each user needs";
        case RD_KAFKA_RESP_ERR_INVALID_GROUP_ID: return ": choose another `group`";
        case RD_KAFKA_RESP_ERR_INVALID_SESSION_TIMEOUT:
            return ": set the brokers' group.min.session.timeout.ms and group.max.session.timeout.ms so that a worker's session fits";
        case RD_KAFKA_RESP_ERR_INCONSISTENT_GROUP_PROTOCOL:
            return ": the group has members that are not workers, or use another `group_protocol`: stop those, or give the workers another "
                   "`group`";
        case RD_KAFKA_RESP_ERR_GROUP_MAX_SIZE_REACHED: return ": start fewer workers, or raise the brokers' group.max.size";
        case RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE:
            return fmt::format(": set the brokers' offset.metadata.max.bytes to {} or more", commit_metadata_chars_max);
        case RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION:
        case RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE: return ": these brokers are too old for that";
        default: return {};
    }
}

std::string explain(rd_kafka_resp_err_t error, std::string_view topic) { return rd_kafka_err2str(error) + advice_for(error, topic); }

}  // namespace lorry::consumer
