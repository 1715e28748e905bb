// One idempotent producer, for one record at a time.
#include "consumer/kafka/follow/record_writer.h"

#include <fmt/format.h>

#include "consumer/kafka/producer.h"

namespace lorry::consumer {
namespace {

constexpr std::chrono::seconds patience{10};

}  // namespace

RecordWriter::RecordWriter(const KafkaConfig& config) : config_(config) {
    config_.deadline_start = patience;
    config_.deadline_later = patience;
}

RecordWriter::~RecordWriter() = default;

void RecordWriter::write(const Record& record) {
    const std::lock_guard lock(mutex_);
    refusal_.reset();
    try {
        if (!producer_) {
            producer_ = std::make_unique<KafkaProducer>(
                config_, KafkaProducer::Options{.on_delivery = [this](const KafkaProducer::Delivery& delivery) {
                    if (delivery.error != RD_KAFKA_RESP_ERR_NO_ERROR) refusal_ = rd_kafka_err2str(delivery.error);
                }});
        }
        const auto sent = producer_->send({.topic = record.topic,
                                           .partition = record.partition,
                                           .key = record.key,
                                           .value = record.value ? std::optional<std::string_view>(*record.value) : std::nullopt,
                                           .headers = {}});
        if (!sent) refusal_ = rd_kafka_err2str(sent.error());
        producer_->wait_all(fmt::format("writing to {}", record.topic));
    } catch (const KafkaError&) {
        producer_.reset();
        throw;
    }
    if (refusal_) throw KafkaError(fmt::format("{}: {}", record.topic, *refusal_));
}

}  // namespace lorry::consumer
