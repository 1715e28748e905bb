// Implements the requests with the admin client (ListOffsets) and the consumer (offsets for times).
#include "consumer/kafka/end_offsets.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "consumer/kafka/times.h"
#include "schema/check.h"

namespace lorry::consumer {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

}  // namespace

Expected<EndOffsets, NoEndOffsets> end_offsets(const KafkaConnection& connection, const TopicPartitions& partitions,
                                               rd_kafka_IsolationLevel_t level, const std::stop_token& stop, milliseconds limit) {
    EndOffsets answer;
    if (partitions.empty()) return answer;
    const PartitionListHandle list = list_of(partitions);
    for (int i = 0; i < list->cnt; ++i) list->elems[i].offset = RD_KAFKA_OFFSET_SPEC_LATEST;
    const AdminOptionsHandle options(rd_kafka_AdminOptions_new(connection.handle(), RD_KAFKA_ADMIN_OP_LISTOFFSETS));
    std::array<char, 256> problem{};
    const auto wait = static_cast<int>(std::min<milliseconds>(limit, request_timeout).count());
    rd_kafka_AdminOptions_set_request_timeout(options.get(), wait, problem.data(), problem.size());
    const ErrorHandle refused(rd_kafka_AdminOptions_set_isolation_level(options.get(), level));
    CHECK(!refused, "both isolation levels are known");
    const QueueHandle queue(rd_kafka_queue_new(connection.handle()));
    rd_kafka_ListOffsets(connection.handle(), list.get(), options.get(), queue.get());
    EventHandle event;
    const auto deadline = Clock::now() + limit;
    while (!event && !stop.stop_requested() && Clock::now() < deadline) {
        event.reset(rd_kafka_queue_poll(queue.get(), static_cast<int>(poll_turn.count())));
    }
    const auto error = event ? rd_kafka_event_error(event.get()) : RD_KAFKA_RESP_ERR__TIMED_OUT;
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return tl::unexpected(NoEndOffsets{error, partitions.front().first});
    std::size_t count = 0;
    const auto* const* infos = rd_kafka_ListOffsets_result_infos(rd_kafka_event_ListOffsets_result(event.get()), &count);
    for (std::size_t i = 0; i < count; ++i) {
        const rd_kafka_topic_partition_t* one = rd_kafka_ListOffsetsResultInfo_topic_partition(infos[i]);
        if (one->err != RD_KAFKA_RESP_ERR_NO_ERROR) return tl::unexpected(NoEndOffsets{one->err, one->topic});
        // If a leader does not answer, librdkafka sets neither an offset nor an error for its partitions.
        if (one->offset < 0) return tl::unexpected(NoEndOffsets{RD_KAFKA_RESP_ERR__TIMED_OUT, one->topic});
        answer[{one->topic, one->partition}] = one->offset;
    }
    return answer;
}

std::optional<EndOffsets> wait_for_end_offsets(const KafkaConnection& connection, const TopicPartitions& partitions,
                                               rd_kafka_IsolationLevel_t level, milliseconds deadline, const std::stop_token& stop) {
    const char* what = "asking where partitions end";
    for (Retry retry(connection, what, deadline, stop);;) {
        auto ends = end_offsets(connection, partitions, level, stop);
        if (ends) return *std::move(ends);
        const auto& [error, topic] = ends.error();
        if (is_configuration_error(error)) throw connection.refused(what, error, topic);
        if (!retry.again(explain(error, topic))) return std::nullopt;
    }
}

std::optional<std::int64_t> first_offset_since(const KafkaConnection& connection, const TopicPartitions::value_type& partition,
                                               schema::Timestamp time) {
    if (is_embedded_cluster(connection.cluster_id())) return std::nullopt;
    const PartitionListHandle list = list_of({partition});
    const rd_kafka_topic_partition_t& place = list->elems[0];
    list->elems[0].offset = time.time_since_epoch().count();
    const auto error = rd_kafka_offsets_for_times(connection.handle(), list.get(), static_cast<int>(request_timeout.count()));
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR || place.err != RD_KAFKA_RESP_ERR_NO_ERROR) return std::nullopt;
    return place.offset >= 0 ? place.offset : std::numeric_limits<std::int64_t>::max();
}

}  // namespace lorry::consumer
