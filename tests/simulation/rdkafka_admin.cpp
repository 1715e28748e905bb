// Questions to the brokers: metadata, offsets, ids. Answers are as of the end of the request. See rdkafka.h.
#include <algorithm>
#include <memory>
#include <utility>

#include "schema/check.h"
#include "tests/simulation/rdkafka.h"

using namespace lorry::simulation;  // NOLINT: this file implements a C interface over that namespace

struct rd_kafka_Uuid_s {
    std::string text;
};
struct rd_kafka_TopicDescription_s {
    rd_kafka_error_s error;
    rd_kafka_Uuid_s id;
};
struct rd_kafka_ListOffsetsResultInfo_s {
    rd_kafka_topic_partition_t place;
};
struct rd_kafka_group_result_s {
    rd_kafka_topic_partition_list_t* list = nullptr;
};
struct rd_kafka_TopicCollection_s {
    std::string name;
};
struct rd_kafka_ListConsumerGroupOffsets_s {
    rd_kafka_topic_partition_list_t* list = nullptr;
};
struct rd_kafka_AdminOptions_s {
    Time timeout = 60 * second;
    bool stable = false;
    bool uncommitted = true;
};

// An answer: one of its parts is filled.
struct rd_kafka_op_s {
    rd_kafka_event_type_t type = RD_KAFKA_EVENT_NONE;
    Error error = RD_KAFKA_RESP_ERR_NO_ERROR;
    std::vector<std::string> topics;  // the texts that `infos` point at
    std::vector<rd_kafka_ListOffsetsResultInfo_s> infos;
    std::vector<const rd_kafka_ListOffsetsResultInfo_t*> info_pointers;
    rd_kafka_TopicDescription_s topic;
    const rd_kafka_TopicDescription_t* topic_pointer = &topic;
    rd_kafka_group_result_s group;
    const rd_kafka_group_result_t* group_pointer = &group;
};

namespace {

Error ask(rd_kafka_s& client, Time timeout) {
    return request(client, api_other, client.machine.now() + timeout, [] { return RD_KAFKA_RESP_ERR_NO_ERROR; });
}

// The answer to a question of `client`, which reads it from the queue.
std::unique_ptr<rd_kafka_op_s> answer(rd_kafka_s& client, const rd_kafka_AdminOptions_t* options) {
    auto event = std::make_unique<rd_kafka_op_s>();
    event->error = ask(client, options == nullptr ? 5 * second : options->timeout);
    return event;
}

struct Metadata : rd_kafka_metadata {
    std::string name;
    rd_kafka_metadata_topic described{};
};

}  // namespace

extern "C" {

rd_kafka_resp_err_t rd_kafka_metadata(rd_kafka_t* client, int, rd_kafka_topic_t* topic, const struct rd_kafka_metadata** answer,
                                      int timeout_ms) {
    if (const Error error = ask(*client, timeout_ms * millisecond); error != RD_KAFKA_RESP_ERR_NO_ERROR) return error;
    auto metadata = std::make_unique<Metadata>();
    if (topic != nullptr) {
        metadata->name = topic->name;
        const auto* logs = client->cluster.find(topic->name);
        metadata->described.topic = metadata->name.data();
        metadata->described.partition_cnt = logs == nullptr ? 0 : static_cast<int>(logs->size());
        metadata->described.err = logs == nullptr ? RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART : RD_KAFKA_RESP_ERR_NO_ERROR;
        metadata->topic_cnt = 1;
        metadata->topics = &metadata->described;
    }
    *answer = metadata.release();
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}
void rd_kafka_metadata_destroy(const struct rd_kafka_metadata* metadata) { delete static_cast<const Metadata*>(metadata); }

rd_kafka_resp_err_t rd_kafka_query_watermark_offsets(rd_kafka_t* client, const char* topic, int32_t partition, int64_t* first, int64_t* end,
                                                     int timeout_ms) {
    if (const Error error = ask(*client, timeout_ms * millisecond); error != RD_KAFKA_RESP_ERR_NO_ERROR) return error;
    return rd_kafka_get_watermark_offsets(client, topic, partition, first, end);
}
rd_kafka_resp_err_t rd_kafka_get_watermark_offsets(rd_kafka_t* client, const char* topic, int32_t partition, int64_t* first, int64_t* end) {
    const Log* log = client->cluster.log({topic, partition});
    if (log == nullptr) return RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    *first = 0;
    *end = client->consumer.sees_uncommitted ? log->end() : log->stable_end();
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}
rd_kafka_resp_err_t rd_kafka_offsets_for_times(rd_kafka_t* client, rd_kafka_topic_partition_list_t* list, int timeout_ms) {
    if (const Error error = ask(*client, timeout_ms * millisecond); error != RD_KAFKA_RESP_ERR_NO_ERROR) return error;
    for (int i = 0; i < list->cnt; ++i) {
        rd_kafka_topic_partition_t& one = list->elems[i];
        const Log* log = client->cluster.log({one.topic, one.partition});
        const Time since = one.offset * millisecond - wall_offset;
        const auto found = std::ranges::find_if(log->entries, [&](const Entry& entry) { return entry.time >= since; });
        one.offset = found == log->entries.end() ? RD_KAFKA_OFFSET_END : found - log->entries.begin();
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

rd_kafka_AdminOptions_t* rd_kafka_AdminOptions_new(rd_kafka_t*, rd_kafka_admin_op_t) { return new rd_kafka_AdminOptions_s; }
void rd_kafka_AdminOptions_destroy(rd_kafka_AdminOptions_t* options) { delete options; }
rd_kafka_resp_err_t rd_kafka_AdminOptions_set_request_timeout(rd_kafka_AdminOptions_t* options, int timeout_ms, char*, size_t) {
    options->timeout = timeout_ms * millisecond;
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}
rd_kafka_error_t* rd_kafka_AdminOptions_set_require_stable_offsets(rd_kafka_AdminOptions_t* options, int stable) {
    options->stable = stable != 0;
    return nullptr;
}
rd_kafka_error_t* rd_kafka_AdminOptions_set_isolation_level(rd_kafka_AdminOptions_t* options, rd_kafka_IsolationLevel_t level) {
    options->uncommitted = level == RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED;
    return nullptr;
}

void rd_kafka_ListOffsets(rd_kafka_t* client, rd_kafka_topic_partition_list_t* list, const rd_kafka_AdminOptions_t* options,
                          rd_kafka_queue_t* queue) {
    auto event = answer(*client, options);
    // The client knows the leaders. One that does not answer leaves its partitions without an offset, and without an error.
    const bool is_answered = std::exchange(event->error, RD_KAFKA_RESP_ERR_NO_ERROR) == RD_KAFKA_RESP_ERR_NO_ERROR;
    for (int i = 0; i < list->cnt; ++i) {
        event->topics.emplace_back(list->elems[i].topic);
        const Log* log = client->cluster.log({list->elems[i].topic, list->elems[i].partition});
        rd_kafka_topic_partition_t place{};
        place.partition = list->elems[i].partition;
        place.offset = RD_KAFKA_OFFSET_INVALID;
        if (is_answered) place.offset = options->uncommitted ? log->end() : log->stable_end();
        event->infos.push_back({place});
    }
    for (std::size_t i = 0; i < event->infos.size(); ++i) {
        event->infos[i].place.topic = event->topics[i].data();
        event->info_pointers.push_back(&event->infos[i]);
    }
    queue->events.push_back(event.release());
}
const rd_kafka_ListOffsets_result_t* rd_kafka_event_ListOffsets_result(rd_kafka_event_t* event) { return event; }
const rd_kafka_ListOffsetsResultInfo_t** rd_kafka_ListOffsets_result_infos(const rd_kafka_ListOffsets_result_t* event, size_t* count) {
    *count = event->info_pointers.size();
    return const_cast<rd_kafka_event_t*>(event)->info_pointers.data();  // NOLINT: the interface is not const
}
const rd_kafka_topic_partition_t* rd_kafka_ListOffsetsResultInfo_topic_partition(const rd_kafka_ListOffsetsResultInfo_t* info) {
    return &info->place;
}

rd_kafka_ListConsumerGroupOffsets_t* rd_kafka_ListConsumerGroupOffsets_new(const char*, const rd_kafka_topic_partition_list_t* list) {
    return new rd_kafka_ListConsumerGroupOffsets_s{rd_kafka_topic_partition_list_copy(list)};
}
void rd_kafka_ListConsumerGroupOffsets_destroy(rd_kafka_ListConsumerGroupOffsets_t* request) {
    rd_kafka_topic_partition_list_destroy(request->list);
    delete request;
}
void rd_kafka_ListConsumerGroupOffsets(rd_kafka_t* client, rd_kafka_ListConsumerGroupOffsets_t** requests, size_t,
                                       const rd_kafka_AdminOptions_t* options, rd_kafka_queue_t* queue) {
    auto event = answer(*client, options);
    auto* list = event->group.list = rd_kafka_topic_partition_list_copy(requests[0]->list);
    const bool stable = options->stable && client->cluster.plant != Plant::undecided_offsets;
    for (int i = 0; i < list->cnt; ++i) {
        rd_kafka_topic_partition_t& one = list->elems[i];
        one.offset = RD_KAFKA_OFFSET_INVALID;
        if (stable && client->cluster.is_undecided(one.partition)) {
            one.err = RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT;
            continue;
        }
        const auto found = client->cluster.offsets().find(one.partition);
        if (found == client->cluster.offsets().end()) continue;
        one.offset = found->second.offset;
        one.metadata_size = found->second.metadata.size();
        one.metadata = rd_kafka_mem_malloc(client, one.metadata_size + 1);
        std::ranges::copy(found->second.metadata, static_cast<char*>(one.metadata));
    }
    queue->events.push_back(event.release());
}
const rd_kafka_ListConsumerGroupOffsets_result_t* rd_kafka_event_ListConsumerGroupOffsets_result(rd_kafka_event_t* event) { return event; }
const rd_kafka_group_result_t** rd_kafka_ListConsumerGroupOffsets_result_groups(const rd_kafka_ListConsumerGroupOffsets_result_t* event,
                                                                                size_t* count) {
    *count = 1;
    return &const_cast<rd_kafka_event_t*>(event)->group_pointer;  // NOLINT: the interface is not const
}
const rd_kafka_error_t* rd_kafka_group_result_error(const rd_kafka_group_result_t*) { return nullptr; }
const rd_kafka_topic_partition_list_t* rd_kafka_group_result_partitions(const rd_kafka_group_result_t* group) { return group->list; }

rd_kafka_TopicCollection_t* rd_kafka_TopicCollection_of_topic_names(const char** names, size_t) {
    return new rd_kafka_TopicCollection_s{names[0]};
}
void rd_kafka_TopicCollection_destroy(rd_kafka_TopicCollection_t* names) { delete names; }
void rd_kafka_DescribeTopics(rd_kafka_t* client, const rd_kafka_TopicCollection_t* names, const rd_kafka_AdminOptions_t* options,
                             rd_kafka_queue_t* queue) {
    auto event = answer(*client, options);
    event->topic.id.text = "id-of-" + names->name;
    queue->events.push_back(event.release());
}
const rd_kafka_DescribeTopics_result_t* rd_kafka_event_DescribeTopics_result(rd_kafka_event_t* event) { return event; }
const rd_kafka_TopicDescription_t** rd_kafka_DescribeTopics_result_topics(const rd_kafka_DescribeTopics_result_t* event, size_t* count) {
    *count = 1;
    return &const_cast<rd_kafka_event_t*>(event)->topic_pointer;  // NOLINT: the interface is not const
}
const rd_kafka_error_t* rd_kafka_TopicDescription_error(const rd_kafka_TopicDescription_t* topic) { return &topic->error; }
const rd_kafka_Uuid_t* rd_kafka_TopicDescription_topic_id(const rd_kafka_TopicDescription_t* topic) { return &topic->id; }
int64_t rd_kafka_Uuid_most_significant_bits(const rd_kafka_Uuid_t*) { return 1; }
int64_t rd_kafka_Uuid_least_significant_bits(const rd_kafka_Uuid_t*) { return 1; }
const char* rd_kafka_Uuid_base64str(const rd_kafka_Uuid_t* id) { return id->text.c_str(); }

// The brokers do not tell topics' settings here.
rd_kafka_ConfigResource_t* rd_kafka_ConfigResource_new(rd_kafka_ResourceType_t, const char*) { return nullptr; }
void rd_kafka_ConfigResource_destroy(rd_kafka_ConfigResource_t*) {}
void rd_kafka_DescribeConfigs(rd_kafka_t* client, rd_kafka_ConfigResource_t**, size_t, const rd_kafka_AdminOptions_t* options,
                              rd_kafka_queue_t* queue) {
    auto event = answer(*client, options);
    event->error = RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
    queue->events.push_back(event.release());
}
const rd_kafka_DescribeConfigs_result_t* rd_kafka_event_DescribeConfigs_result(rd_kafka_event_t* event) { return event; }
const rd_kafka_ConfigResource_t** rd_kafka_DescribeConfigs_result_resources(const rd_kafka_DescribeConfigs_result_t*, size_t* count) {
    *count = 0;
    return nullptr;
}
rd_kafka_resp_err_t rd_kafka_ConfigResource_error(const rd_kafka_ConfigResource_t*) { return RD_KAFKA_RESP_ERR_NO_ERROR; }
const rd_kafka_ConfigEntry_t** rd_kafka_ConfigResource_configs(const rd_kafka_ConfigResource_t*, size_t* count) {
    *count = 0;
    return nullptr;
}
const char* rd_kafka_ConfigEntry_name(const rd_kafka_ConfigEntry_t*) { return ""; }
const char* rd_kafka_ConfigEntry_value(const rd_kafka_ConfigEntry_t*) { return nullptr; }

rd_kafka_event_t* rd_kafka_queue_poll(rd_kafka_queue_t* queue, int timeout_ms) {
    if (queue->events.empty()) {
        queue->client->machine.sleep_for(timeout_ms * millisecond);
        return nullptr;
    }
    rd_kafka_event_t* event = queue->events.front();
    queue->events.pop_front();
    return event;
}
void rd_kafka_event_destroy(rd_kafka_event_t* event) {
    if (event->group.list != nullptr) rd_kafka_topic_partition_list_destroy(event->group.list);
    delete event;
}
rd_kafka_event_type_t rd_kafka_event_type(const rd_kafka_event_t* event) { return event->type; }
rd_kafka_resp_err_t rd_kafka_event_error(rd_kafka_event_t* event) { return event->error; }
// Only commits without transactions ask for these.
rd_kafka_resp_err_t rd_kafka_commit_queue(rd_kafka_t*, const rd_kafka_topic_partition_list_t*, rd_kafka_queue_t*,
                                          void (*)(rd_kafka_t*, rd_kafka_resp_err_t, rd_kafka_topic_partition_list_t*, void*), void*) {
    CHECK(false, "the simulation's workers commit in transactions");
}
rd_kafka_topic_partition_list_t* rd_kafka_event_topic_partition_list(rd_kafka_event_t*) {
    CHECK(false, "the simulation's workers commit in transactions");
}
const char* rd_kafka_event_error_string(rd_kafka_event_t* event) { return rd_kafka_err2str(event->error); }

}  // extern "C"
