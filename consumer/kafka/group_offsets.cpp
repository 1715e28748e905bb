// Reads and writes a group's offsets through a consumer that never subscribes.
#include "consumer/kafka/group_offsets.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "consumer/kafka/committed_offsets.h"
#include "consumer/kafka/committer.h"
#include "consumer/kafka/connection.h"
#include "consumer/kafka/past_results.h"
#include "consumer/kafka/times.h"

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;

KafkaSettings settings_of(const std::string& group) { return {{"group.id", group}, {"enable.auto.commit", "false"}}; }

}  // namespace

struct GroupOffsets::State {
    std::string group;
    schema::Topics topics;
    std::string topic = topics.jobs();
    View view;
    KafkaConnection connection;
    bool embedded = false;
    std::int32_t partitions = 0;
    std::string topic_id;

    State(const KafkaConfig& config, std::string group_name, schema::Topics the_topics, View the_view)
        : group(std::move(group_name)),
          topics(std::move(the_topics)),
          view(the_view),
          connection(config, KafkaConnection::Kind::consumer, settings_of(group)),
          embedded(is_embedded_cluster(connection.cluster_id())),
          partitions(connection.required_partition_count(topic)),
          topic_id(connection.topic_id(topic)) {}

    PartitionListHandle list() const { return list_of(partitions_of(topic, partitions)); }

    // Repeats the request until it succeeds. An error that will not go away is thrown at once.
    template <typename Ask>
    void until_answered(std::string_view what, Ask ask) const {
        const std::string of_group = fmt::format("{} of group {}", what, group);
        for (Retry retry(connection, of_group, connection.config().deadline_start);;) {
            const rd_kafka_resp_err_t error = ask();
            if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return;
            if (is_configuration_error(error)) throw connection.refused(of_group, error, topic);
            retry.again(rd_kafka_err2str(error));
        }
    }
};

GroupOffsets::GroupOffsets(const KafkaConfig& config, std::string group, schema::Topics topics, View view)
    : state_(std::make_unique<State>(config, std::move(group), std::move(topics), view)) {}

GroupOffsets::~GroupOffsets() = default;

std::optional<GroupMembers> GroupOffsets::members() const {
    if (state_->embedded) return std::nullopt;
    const QueueHandle queue(rd_kafka_queue_new(state_->connection.handle()));
    GroupMembers members;
    state_->until_answered("asking for the members", [&] {
        const char* name = state_->group.c_str();
        rd_kafka_DescribeConsumerGroups(state_->connection.handle(), &name, 1, nullptr, queue.get());
        const EventHandle event(rd_kafka_queue_poll(queue.get(), static_cast<int>(request_timeout.count())));
        if (!event) return RD_KAFKA_RESP_ERR__TIMED_OUT;
        if (const auto error = rd_kafka_event_error(event.get()); error != RD_KAFKA_RESP_ERR_NO_ERROR) return error;
        std::size_t count = 0;
        const auto* const* groups =
            rd_kafka_DescribeConsumerGroups_result_groups(rd_kafka_event_DescribeConsumerGroups_result(event.get()), &count);
        CHECK(count == 1, "one group was asked for");
        if (const auto* error = rd_kafka_ConsumerGroupDescription_error(groups[0]); error != nullptr) {
            // Brokers before 4.0 report such a group as dead, later ones as not found.
            const auto code = rd_kafka_error_code(error);
            if (code == RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND) members.state = "Dead";
            return code == RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND ? RD_KAFKA_RESP_ERR_NO_ERROR : code;
        }
        members.state = rd_kafka_consumer_group_state_name(rd_kafka_ConsumerGroupDescription_state(groups[0]));
        for (std::size_t i = 0; i < rd_kafka_ConsumerGroupDescription_member_count(groups[0]); ++i) {
            const auto* member = rd_kafka_ConsumerGroupDescription_member(groups[0], i);
            const char* id = rd_kafka_MemberDescription_group_instance_id(member);
            members.names.emplace_back(id != nullptr ? id : rd_kafka_MemberDescription_consumer_id(member));
        }
        return RD_KAFKA_RESP_ERR_NO_ERROR;
    });
    std::sort(members.names.begin(), members.names.end());
    return members;
}

std::int64_t GroupOffsets::topic_mark() const { return mark_of_topic(state_->topic_id); }

std::vector<PartitionOffsets> GroupOffsets::read() const {
    PartitionListHandle list;
    state_->until_answered("reading the offsets", [&] {
        list = state_->list();
        return committed_offsets_of_all(state_->connection, list, request_timeout, RD_KAFKA_RESP_ERR_NO_ERROR,
                                        state_->view == View::settled);
    });
    std::vector<PartitionOffsets> all;
    for (int i = 0; i < list->cnt; ++i) {
        const rd_kafka_topic_partition_t& found = list->elems[i];
        const auto log = state_->connection.watermarks(state_->topic, found.partition, state_->connection.config().deadline_start);
        const auto state = found.offset >= 0 ? std::optional(decode_commit_metadata(found.offset, metadata_of(found))) : std::nullopt;
        const bool is_outdated = state && *state && is_of_other_topic(**state, state_->topic_id);
        all.push_back({.partition = found.partition,
                       .committed = found.offset >= 0 && !is_outdated ? std::optional(found.offset) : std::nullopt,
                       .metadata = std::string(metadata_of(found)),
                       .first = log.first,
                       .end = log.end,
                       .is_outdated = is_outdated});
    }
    return all;
}

std::vector<std::int64_t> GroupOffsets::offsets_since(schema::Timestamp time) const {
    const PartitionListHandle list = state_->list();
    state_->until_answered("looking for the time", [&] {
        for (int i = 0; i < list->cnt; ++i) list->elems[i].offset = time.time_since_epoch().count();
        const auto error = rd_kafka_offsets_for_times(state_->connection.handle(), list.get(), static_cast<int>(request_timeout.count()));
        return error == RD_KAFKA_RESP_ERR_NO_ERROR ? first_error(*list) : error;
    });
    std::vector<std::int64_t> offsets;
    for (int i = 0; i < list->cnt; ++i) {
        const auto log = [&] {
            return state_->connection.watermarks(state_->topic, list->elems[i].partition, state_->connection.config().deadline_start);
        };
        offsets.push_back(list->elems[i].offset >= 0 ? list->elems[i].offset : log().end);
    }
    return offsets;
}

std::vector<EndsSeen> GroupOffsets::ends_seen() const {
    std::vector<PastResults::Question> questions;  // these ask about no job
    for (std::int32_t i = 0; i < state_->partitions; ++i) questions.push_back({.partition = i, .first = 0, .end = 0, .seen = EndsSeen{}});
    // Includes what open transactions have written: it was there before this call.
    const auto answers = PastResults(state_->connection, state_->topics).ask(questions, std::stop_token(), milliseconds(0));
    std::vector<EndsSeen> ends;
    for (const auto& [partition, answer] : *answers) ends.push_back(answer.seen);
    return ends;
}

void GroupOffsets::set(const std::vector<NewOffset>& offsets) const {
    std::vector<PartitionCommit> commits;
    for (const NewOffset& wanted : offsets) {
        commits.push_back(
            {.topic = state_->topic, .partition = wanted.partition, .epoch = 0, .offset = wanted.offset, .metadata = wanted.metadata});
    }
    const PartitionListHandle list = offsets_of(state_->connection.handle(), commits);
    state_->until_answered("setting the offsets", [&] {
        auto error = rd_kafka_commit(state_->connection.handle(), list.get(), 0);
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR) error = first_error(*list);
        if (error == RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID || error == RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION) {
            throw KafkaError(fmt::format("Kafka at {}: group {} has members now: stop its workers and try again",
                                         state_->connection.config().brokers, state_->group));
        }
        return error;
    });
}

}  // namespace lorry::consumer
