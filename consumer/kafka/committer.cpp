// The at-least-once committer: produce, wait for the acknowledgements, mark finished, commit offsets through the consumer.
#include "consumer/kafka/committer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "consumer/kafka/fault_point.h"
#include "consumer/kafka/producer.h"
#include "consumer/log.h"

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds commit_timeout{10'000};  // of one request
// While the group rebalances, commits are refused for a moment. If they are still refused after this time, the next commit includes them.
constexpr milliseconds rebalance_patience{1'000};

bool is_rebalancing(rd_kafka_resp_err_t error) {
    switch (error) {
        case RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS:
        case RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION:
        case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID:
        case RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST: return true;
        default: return false;
    }
}

class AtLeastOnceCommitter : public Committer {
public:
    AtLeastOnceCommitter(const KafkaConfig& config, KafkaConnection& consumer, OffsetTracker& tracker, const ProducerLimits& limits)
        : consumer_(consumer),
          tracker_(tracker),
          offsets_(rd_kafka_queue_new(consumer.handle())),
          producer_(config, {.limits = limits, .on_delivery = [this](const KafkaProducer::Delivery& delivery) {
                                 if (delivery.error != RD_KAFKA_RESP_ERR_NO_ERROR) errors_.at(delivery.tag) = delivery.error;
                             }}) {}

    std::vector<RejectedEntry> commit(std::vector<OutboxEntry> entries) override {
        std::erase_if(entries, [&](const OutboxEntry& entry) { return !tracker_.is_current(entry.source, entry.epoch); });
        errors_.assign(entries.size(), RD_KAFKA_RESP_ERR_NO_ERROR);
        if (!entries.empty()) fault_point("outbox.begin");
        for (std::size_t i = 0; i < entries.size(); ++i) send(entries[i], i);
        producer_.wait_all("publishing results");
        if (!entries.empty()) fault_point("outbox.produced");
        std::vector<RejectedEntry> rejected;
        for (std::size_t i = 0; i < entries.size(); ++i) {
            if (errors_[i] == RD_KAFKA_RESP_ERR_NO_ERROR) {
                tracker_.finish(entries[i].source, entries[i].epoch, ends_seen(producer_.delivered(), entries[i]));
            } else {
                ++entries[i].rejections;
                rejected.push_back({std::move(entries[i]), rd_kafka_err2str(errors_[i])});
            }
        }
        producer_.poll(milliseconds(0));
        commit_offsets();
        return rejected;
    }

private:
    void send(const OutboxEntry& entry, std::size_t index) {
        for (const OutboxRecord& record : entry.records) {
            const auto sent = producer_.send({.topic = record.topic,
                                              .partition = record.partition,
                                              .key = record.key,
                                              .value = record.value,
                                              .headers = record.headers,
                                              .tag = index});
            if (sent) continue;
            errors_[index] = sent.error();
            return;
        }
    }

    void commit_offsets() {
        const auto patience_end = std::chrono::steady_clock::now() + rebalance_patience;
        for (Retry retry(consumer_, "committing offsets", consumer_.config().deadline_later);;) {
            const auto commits = tracker_.snapshot();
            if (commits.empty()) return;
            const auto error = commit_once(commits);
            if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
                tracker_.committed(commits);
                return;
            }
            consumer_.check_fatal();
            if (is_configuration_error(error)) throw consumer_.refused("committing offsets", error, commits.front().topic);
            if (is_rebalancing(error) && std::chrono::steady_clock::now() > patience_end) {
                log_info("offsets could not be committed during a rebalance ({}); they go with the next commit", rd_kafka_err2str(error));
                return;
            }
            retry.again(explain(error, commits.front().topic));
        }
    }

    rd_kafka_resp_err_t commit_once(const std::vector<PartitionCommit>& commits) {
        const PartitionListHandle list = offsets_of(consumer_.handle(), commits);
        const auto sent = rd_kafka_commit_queue(consumer_.handle(), list.get(), offsets_.get(), nullptr, nullptr);
        if (sent != RD_KAFKA_RESP_ERR_NO_ERROR) return sent;
        const EventHandle event(rd_kafka_queue_poll(offsets_.get(), static_cast<int>(commit_timeout.count())));
        if (!event) {
            // A late answer must not be taken for the answer to a later request.
            offsets_.reset(rd_kafka_queue_new(consumer_.handle()));
            return RD_KAFKA_RESP_ERR__TIMED_OUT;
        }
        CHECK(rd_kafka_event_type(event.get()) == RD_KAFKA_EVENT_OFFSET_COMMIT, "the queue holds answers to commits only");
        if (const auto error = rd_kafka_event_error(event.get()); error != RD_KAFKA_RESP_ERR_NO_ERROR) return error;
        const rd_kafka_topic_partition_list_t* answered = rd_kafka_event_topic_partition_list(event.get());
        return answered == nullptr ? RD_KAFKA_RESP_ERR_NO_ERROR : first_error(*answered);
    }

    KafkaConnection& consumer_;
    OffsetTracker& tracker_;
    QueueHandle offsets_;
    std::vector<rd_kafka_resp_err_t> errors_;  // by entry of the commit in progress
    KafkaProducer producer_;
};

}  // namespace

std::size_t bytes_of(const OutboxRecord& record) {
    constexpr std::size_t frame = 128;  // lengths, timestamp and offset of a record, and the header with its transaction
    constexpr std::size_t header_frame = 8;
    return frame + record.headers.size() * header_frame +
           static_cast<std::size_t>(schema::text_bytes(record.key, record.value, record.headers));
}

EndsSeen ends_seen(const DeliveredEnds& delivered, const OutboxEntry& entry) {
    const OutboxRecord& end = entry.records.front();
    CHECK(end.partition, "the record that ends a job names its partition");
    const std::int64_t behind = delivered.of(end.topic, *end.partition);
    return entry.completion ? EndsSeen{.results = behind} : EndsSeen{.dead_letters = behind};
}

PartitionListHandle offsets_of(rd_kafka_t* consumer, const std::vector<PartitionCommit>& commits) {
    PartitionListHandle list(rd_kafka_topic_partition_list_new(static_cast<int>(commits.size())));
    for (const PartitionCommit& commit : commits) {
        rd_kafka_topic_partition_t* place = rd_kafka_topic_partition_list_add(list.get(), commit.topic.c_str(), commit.partition);
        place->offset = commit.offset;
        place->metadata = rd_kafka_mem_malloc(consumer, commit.metadata.size());
        place->metadata_size = commit.metadata.size();
        std::copy(commit.metadata.begin(), commit.metadata.end(), static_cast<char*>(place->metadata));
    }
    return list;
}

std::unique_ptr<Committer> make_at_least_once_committer(const KafkaConfig& config, KafkaConnection& consumer, OffsetTracker& tracker,
                                                        const ProducerLimits& limits) {
    return std::make_unique<AtLeastOnceCommitter>(config, consumer, tracker, limits);
}

}  // namespace lorry::consumer
