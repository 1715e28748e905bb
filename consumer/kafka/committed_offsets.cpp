// Uses the admin client's ListConsumerGroupOffsets, which reports errors for each partition separately.
#include "consumer/kafka/committed_offsets.h"

#include <fmt/format.h>

#include <array>

namespace lorry::consumer {

using std::chrono::milliseconds;

rd_kafka_resp_err_t committed_offsets(const KafkaConnection& consumer, PartitionListHandle& partitions, milliseconds timeout, bool stable) {
    rd_kafka_t* handle = consumer.handle();
    std::size_t group_bytes = 0;
    rd_kafka_conf_get(rd_kafka_conf(handle), "group.id", nullptr, &group_bytes);
    std::string group(group_bytes, '\0');
    rd_kafka_conf_get(rd_kafka_conf(handle), "group.id", group.data(), &group_bytes);
    // Not rd_kafka_committed(): it answers for all partitions or none, and waits for undecided offsets.
    const AdminOptionsHandle options(rd_kafka_AdminOptions_new(handle, RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS));
    std::array<char, 256> problem{};
    const auto wait = static_cast<int>(timeout.count());
    rd_kafka_AdminOptions_set_request_timeout(options.get(), wait, problem.data(), problem.size());
    const ErrorHandle refused(rd_kafka_AdminOptions_set_require_stable_offsets(options.get(), stable ? 1 : 0));
    CHECK(!refused, "this request can ask for stable offsets");
    const GroupOffsetsRequestHandle request(rd_kafka_ListConsumerGroupOffsets_new(group.c_str(), partitions.get()));
    rd_kafka_ListConsumerGroupOffsets_t* requests[] = {request.get()};
    const QueueHandle queue(rd_kafka_queue_new(handle));
    rd_kafka_ListConsumerGroupOffsets(handle, requests, 1, options.get(), queue.get());
    const EventHandle event(rd_kafka_queue_poll(queue.get(), 2 * wait));
    if (!event) return RD_KAFKA_RESP_ERR__TIMED_OUT;
    if (const auto error = rd_kafka_event_error(event.get()); error != RD_KAFKA_RESP_ERR_NO_ERROR) return error;
    std::size_t count = 0;
    const auto* const* groups =
        rd_kafka_ListConsumerGroupOffsets_result_groups(rd_kafka_event_ListConsumerGroupOffsets_result(event.get()), &count);
    CHECK(count == 1, "one group was asked for");
    if (const auto* error = rd_kafka_group_result_error(groups[0]); error != nullptr) return rd_kafka_error_code(error);
    partitions.reset(rd_kafka_topic_partition_list_copy(rd_kafka_group_result_partitions(groups[0])));
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

rd_kafka_resp_err_t committed_offsets_of_all(const KafkaConnection& consumer, PartitionListHandle& partitions, milliseconds timeout,
                                             rd_kafka_resp_err_t tolerated, bool stable) {
    const auto error = committed_offsets(consumer, partitions, timeout, stable);
    return error == RD_KAFKA_RESP_ERR_NO_ERROR ? first_error(*partitions, tolerated) : error;
}

std::string_view metadata_of(const rd_kafka_topic_partition_t& committed) {
    return {static_cast<const char*>(committed.metadata), committed.metadata_size};
}

Expected<CommitState, CommitMetadataError> committed_state(const std::string& topic, std::int32_t partition, std::int64_t offset,
                                                           std::string_view metadata) {
    auto state = decode_commit_metadata(offset, metadata);
    if (!state && state.error().kind == CommitMetadataError::Kind::newer) {
        throw KafkaError(fmt::format("{} [{}], offset {}: {}", topic, partition, offset, state.error().text));
    }
    return state;
}

}  // namespace lorry::consumer
