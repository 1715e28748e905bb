// Reads and writes a group's offsets through a consumer that never subscribes.
#include "consumer/kafka/group_offsets.h"

#include <fmt/format.h>

#include <set>
#include <string_view>
#include <utility>

#include "consumer/kafka/committed_offsets.h"
#include "consumer/kafka/committer.h"
#include "consumer/kafka/connection.h"
#include "consumer/kafka/past_results.h"
#include "consumer/kafka/takeover.h"
#include "consumer/kafka/times.h"
#include "consumer/kafka/transactions.h"
#include "schema/codec.h"

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;

KafkaSettings settings_of(const std::string& group) { return {{"group.id", group}, {"enable.auto.commit", "false"}}; }

}  // namespace

struct GroupOffsets::State {
    std::string group;
    schema::Topics topics;
    std::string topic;
    View view;
    KafkaConnection connection;
    bool embedded = false;
    std::int32_t partitions = 0;
    std::string topic_id;

    State(const KafkaConfig& config, std::string group_name, schema::Topics the_topics, View the_view,
          const std::optional<std::string>& input)
        : group(std::move(group_name)),
          topics(std::move(the_topics)),
          topic(input.value_or(topics.jobs())),
          view(the_view),
          connection(config, KafkaConnection::Kind::consumer, settings_of(group)),
          embedded(is_embedded_cluster(connection.cluster_id())),
          partitions(connection.required_partition_count(topic)),
          topic_id(connection.topic_id(topic)) {}

    // Without the log's bounds.
    PartitionOffsets offsets_in(const rd_kafka_topic_partition_t& found) const {
        const auto state = found.offset >= 0 ? std::optional(decode_commit_metadata(found.offset, metadata_of(found))) : std::nullopt;
        const bool is_outdated = state && *state && is_of_other_topic(**state, topic_id);
        return {.partition = found.partition,
                .committed = found.offset >= 0 && !is_outdated ? std::optional(found.offset) : std::nullopt,
                .metadata = std::string(metadata_of(found)),
                .is_outdated = is_outdated};
    }

    // All partitions, in order. Not settled: without what an open transaction may commit.
    std::vector<PartitionOffsets> committed(bool settled) const {
        PartitionListHandle asked;
        until_answered("reading the offsets", [&] {
            asked = list();
            return committed_offsets_of_all(connection, asked, request_timeout, RD_KAFKA_RESP_ERR_NO_ERROR, settled);
        });
        std::vector<PartitionOffsets> all;
        for (int i = 0; i < asked->cnt; ++i) all.push_back(offsets_in(asked->elems[i]));
        return all;
    }

    TakenOver taken_over(const PartitionOffsets& at) const {
        TakenOver taken = take_over(topic, at.partition, at.committed, at.metadata, {.first = at.first, .end = at.end}, topic_id);
        if (taken.basis == Basis::commit) return taken;
        throw KafkaError(
            fmt::format("Kafka at {}: the group's offset for {} [{}] does not say which jobs are finished. Start a worker, "
                        "which finds out and commits it; stop the worker when it reports the record, and try again",
                        connection.config().brokers, topic, at.partition));
    }

    KafkaError has_members() const {
        return KafkaError(
            fmt::format("Kafka at {}: group {} has members now: stop its workers and try again", connection.config().brokers, group));
    }

    // A dead letter without the record, which nobody can read.
    std::vector<schema::Header> dead_letter_headers(const UnreadableBatch& batch, std::int64_t offset) const {
        const std::string message = fmt::format("the record was given up: its batch, offsets {} to {}, cannot be read: {}", batch.first,
                                                batch.end - 1, batch.reason);
        std::vector<schema::Header> headers =
            schema::dead_letter_headers({.source = {topic, batch.partition, offset},
                                         .key = {},
                                         .value = {},
                                         .headers = {},
                                         .error = {.code = schema::ErrorCode::unreadable_record, .param = {}, .message = message}});
        if (!topic_id.empty()) headers.emplace_back(schema::source_topic_id_header, topic_id);
        return headers;
    }

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

GroupOffsets::GroupOffsets(const KafkaConfig& config, std::string group, schema::Topics topics, View view,
                           const std::optional<std::string>& input)
    : state_(std::make_unique<State>(config, std::move(group), std::move(topics), view, input)) {}

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
    std::vector<PartitionOffsets> all = state_->committed(state_->view == View::settled);
    for (PartitionOffsets& one : all) {
        const auto log = state_->connection.watermarks(state_->topic, one.partition, state_->connection.config().deadline_start);
        one.first = log.first;
        one.end = log.end;
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
    for (std::int32_t i = 0; i < state_->partitions; ++i)
        questions.push_back({.place = {state_->topic, i}, .first = 0, .end = 0, .seen = EndsSeen{}});
    // Includes what open transactions have written: it was there before this call.
    const auto answers = PastResults(state_->connection, state_->topics).ask(questions, std::stop_token(), milliseconds(0));
    std::vector<EndsSeen> ends;
    for (const auto& [place, answer] : *answers) ends.push_back(answer.seen);
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
            throw state_->has_members();
        }
        return error;
    });
}

std::optional<UnreadableBatch> GroupOffsets::blocking(const PartitionOffsets& at) const {
    return unreadable_batch_at(state_->connection.config(), state_->topic, at.partition, state_->taken_over(at).start, at.end);
}

void GroupOffsets::skip(const PartitionOffsets& at, const UnreadableBatch& batch) const {
    const KafkaConfig& config = state_->connection.config();
    const TakenOver taken = state_->taken_over(at);
    const std::string dlq = state_->topics.dlq();
    const std::int32_t dlq_partition = batch.partition % state_->connection.required_partition_count(dlq);
    TransactionalProducer producer(config, {.id = fmt::format("{}/{}", state_->topics.prefix, state_->group), .limits = {}});
    const auto require = [&](const StepResult& result) {
        if (result.end == StepEnd::done) return;
        throw KafkaError(
            fmt::format("Kafka at {}: {}. Run the command again: it begins with what is committed then", config.brokers, result.reason));
    };
    require(producer.open(config.deadline_start));
    require(producer.begin(1));
    std::set<std::int64_t> given_up;
    for (std::int64_t offset = taken.start; offset < batch.end; ++offset) {
        given_up.insert(offset);
        // Below the batch there are no records, and a job that has ended must not end twice.
        if (offset < batch.first || is_finished(taken.state, offset)) continue;
        const auto headers = state_->dead_letter_headers(batch, offset);
        producer.send({.topic = dlq, .partition = dlq_partition, .key = {}, .value = {}, .headers = headers, .tag = 0});
    }
    require(producer.finish_sending());
    const CommitState state = with_finished(taken.state, taken.start, given_up);
    const GroupMetadataHandle group(rd_kafka_consumer_group_metadata_new(state_->group.c_str()));
    const PartitionListHandle offsets = offsets_of(state_->connection.handle(), {{.topic = state_->topic,
                                                                                  .partition = at.partition,
                                                                                  .epoch = 0,
                                                                                  .offset = state.offset,
                                                                                  .metadata = encode_commit_metadata(state)}});
    require(producer.send_offsets(group.get(), offsets.get()));
    // The brokers accept these offsets even if the group has members. But from here on a new owner of the partition waits for this
    // transaction, so what is true now stays true until it ends.
    const auto now = members();
    const PartitionOffsets before = state_->committed(false).at(static_cast<std::size_t>(at.partition));
    const bool is_moved = before.committed != at.committed || before.metadata != at.metadata;
    if (!now || !now->names.empty() || is_moved) {
        require(producer.abort());
        if (!is_moved) throw state_->has_members();
        throw KafkaError(fmt::format("Kafka at {}: group {} has committed meanwhile: try again", config.brokers, state_->group));
    }
    require(producer.commit());
}

}  // namespace lorry::consumer
