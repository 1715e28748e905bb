// A queue for the fetched records of one partition, separate from the consumer's common queue. Used by KafkaSource.
#pragma once

#include <cstdint>
#include <string>

#include "consumer/kafka/handles.h"
#include "schema/check.h"

namespace lorry::consumer {

// Create it before the partition is assigned, so that no record enters the common queue. A record that arrives in the empty queue makes a
// waiting rd_kafka_consumer_poll return, as records in the common queue do.
class PartitionQueue {
public:
    // The client must outlive this.
    PartitionQueue(rd_kafka_t* client, const std::string& topic, std::int32_t partition)
        : queue_(rd_kafka_queue_get_partition(client, topic.c_str(), partition)), common_(rd_kafka_queue_get_consumer(client)) {
        CHECK(queue_ != nullptr && common_ != nullptr, "a consumer has a queue for each partition");
        rd_kafka_queue_forward(queue_.get(), nullptr);
        rd_kafka_queue_cb_event_enable(queue_.get(), on_record, common_.get());
    }
    ~PartitionQueue() {
        if (queue_) rd_kafka_queue_cb_event_enable(queue_.get(), nullptr, nullptr);
    }
    PartitionQueue(PartitionQueue&&) noexcept = default;
    PartitionQueue& operator=(PartitionQueue&&) = delete;

    // The next record or error; nullptr if there is none.
    MessageHandle next() { return MessageHandle(rd_kafka_consume_queue(queue_.get(), 0)); }

private:
    // Called on one of the client's threads.
    static void on_record(rd_kafka_t*, void* common) { rd_kafka_queue_yield(static_cast<rd_kafka_queue_t*>(common)); }

    QueueHandle queue_;
    QueueHandle common_;
};

}  // namespace lorry::consumer
