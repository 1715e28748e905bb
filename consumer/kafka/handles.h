// librdkafka's C handles with their deleters. This is the one place that knows how each handle is freed. Included by the headers and
// sources in consumer/kafka/ that talk to librdkafka.
#pragma once

#include <librdkafka/rdkafka.h>

#include <memory>
#include <string>

#include "schema/deleter.h"

namespace lorry::consumer {

// Destroys the client without leaving the group, so that an exception on the way out never hangs here. To leave the group, close the
// consumer first.
inline void destroy_kafka_client(rd_kafka_t* handle) { rd_kafka_destroy_flags(handle, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE); }

using KafkaClientHandle = std::unique_ptr<rd_kafka_t, schema::Deleter<destroy_kafka_client>>;
using KafkaConfHandle = std::unique_ptr<rd_kafka_conf_t, schema::Deleter<rd_kafka_conf_destroy>>;
using PartitionListHandle = std::unique_ptr<rd_kafka_topic_partition_list_t, schema::Deleter<rd_kafka_topic_partition_list_destroy>>;
using MessageHandle = std::unique_ptr<rd_kafka_message_t, schema::Deleter<rd_kafka_message_destroy>>;
using QueueHandle = std::unique_ptr<rd_kafka_queue_t, schema::Deleter<rd_kafka_queue_destroy>>;
using EventHandle = std::unique_ptr<rd_kafka_event_t, schema::Deleter<rd_kafka_event_destroy>>;
using ErrorHandle = std::unique_ptr<rd_kafka_error_t, schema::Deleter<rd_kafka_error_destroy>>;
using HeadersHandle = std::unique_ptr<rd_kafka_headers_t, schema::Deleter<rd_kafka_headers_destroy>>;
using AdminOptionsHandle = std::unique_ptr<rd_kafka_AdminOptions_t, schema::Deleter<rd_kafka_AdminOptions_destroy>>;
using NewTopicHandle = std::unique_ptr<rd_kafka_NewTopic_t, schema::Deleter<rd_kafka_NewTopic_destroy>>;
using ConfigResourceHandle = std::unique_ptr<rd_kafka_ConfigResource_t, schema::Deleter<rd_kafka_ConfigResource_destroy>>;
using TopicCollectionHandle = std::unique_ptr<rd_kafka_TopicCollection_t, schema::Deleter<rd_kafka_TopicCollection_destroy>>;
using GroupMetadataHandle = std::unique_ptr<rd_kafka_consumer_group_metadata_t, schema::Deleter<rd_kafka_consumer_group_metadata_destroy>>;
using GroupOffsetsRequestHandle =
    std::unique_ptr<rd_kafka_ListConsumerGroupOffsets_t, schema::Deleter<rd_kafka_ListConsumerGroupOffsets_destroy>>;
using LocalTopicHandle = std::unique_ptr<rd_kafka_topic_t, schema::Deleter<rd_kafka_topic_destroy>>;

inline void destroy_kafka_metadata(const rd_kafka_metadata_t* metadata) { rd_kafka_metadata_destroy(metadata); }
using MetadataHandle = std::unique_ptr<const rd_kafka_metadata_t, schema::Deleter<destroy_kafka_metadata>>;

}  // namespace lorry::consumer
