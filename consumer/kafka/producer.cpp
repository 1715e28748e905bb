// Sends with back-pressure and dispatches delivery reports.
#include "consumer/kafka/producer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "consumer/kafka/times.h"
#include "consumer/reading_pace.h"

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t record_frame = 128;  // what a record takes besides its key and value, and a batch of its own

KafkaSettings settings_of(const KafkaConfig& config, const KafkaProducer::Options& options) {
    KafkaSettings settings = producer_settings(options.limits);
    settings.emplace_back("message.timeout.ms", std::to_string(config.deadline_later.count()));
    settings.emplace_back("queue.buffering.max.kbytes", std::to_string(std::max<std::size_t>(1024, options.bytes_in_flight_max / 1024)));
    return settings;
}

}  // namespace

KafkaProducer::KafkaProducer(const KafkaConfig& config, Options options)
    : options_(std::move(options)),
      connection_(
          config, KafkaConnection::Kind::producer, settings_of(config, options_),
          [](rd_kafka_conf_t* conf) { rd_kafka_conf_set_dr_msg_cb(conf, on_report); }, this) {}

void KafkaProducer::on_report(rd_kafka_t*, const rd_kafka_message_t* message, void* opaque) {
    auto* self = static_cast<KafkaProducer*>(static_cast<KafkaContext*>(opaque)->owner);
    Report report{{reinterpret_cast<std::uint64_t>(message->_private), message->err}, {}};  // NOLINT: produce() put a number there
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) report.topic = rd_kafka_topic_name(message->rkt);
    self->reports_.push_back(std::move(report));
    self->delivered_.note(*message);
}

void KafkaProducer::dispatch() {
    for (const Report& report : std::exchange(reports_, {})) {
        CHECK(in_flight_ > 0, "a delivery report without a record");
        --in_flight_;
        const auto error = report.delivery.error;
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR && !is_record_error(error)) {
            connection_.check_fatal();
            // The client has dropped the record and cannot send it again.
            if (is_configuration_error(error) || is_missing_topic(error)) {
                throw connection_.refused(fmt::format("writing to {}", report.topic), error, report.topic);
            }
            throw connection_.away(fmt::format("writing to {} ({})", report.topic, rd_kafka_err2str(error)),
                                   connection_.config().deadline_later);
        }
        if (options_.on_delivery) options_.on_delivery(report.delivery);
    }
}

void KafkaProducer::keep_pace(const Produce& record) {
    const KafkaConfig& config = connection_.config();
    if (!config.pace) return;
    const std::size_t bytes = record_frame + record.key.value_or("").size() + record.value.value_or("").size();
    bytes_ahead_ += bytes;
    if (bytes_ahead_ <= ReadingPace::bytes_ahead) return;
    wait_all("writing what has to be read first");
    if (!config.pace->wait_until_read(delivered_.all(), config.deadline_later))
        throw KafkaError(fmt::format("writing to {}: what was written before is not read", record.topic));
    bytes_ahead_ = bytes;
}

Expected<void, rd_kafka_resp_err_t> KafkaProducer::send(const Produce& record) {
    keep_pace(record);
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
        const auto error = produce(connection_.handle(), record);
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
            ++in_flight_;
            return {};
        }
        if (is_record_error(error)) return tl::unexpected(error);
        connection_.check_fatal();
        const std::string what = fmt::format("writing to {}", record.topic);
        if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL && !is_missing_topic(error)) throw connection_.refused(what, error, record.topic);
        if (std::chrono::steady_clock::now() - start > connection_.config().deadline_later) {
            throw connection_.away(fmt::format("{} ({})", what, explain(error, record.topic)), connection_.config().deadline_later);
        }
        // Asking makes the client notice when the topic exists again.
        if (is_missing_topic(error)) connection_.try_partition_count(std::string(record.topic));
        poll(poll_turn);
    }
}

void KafkaProducer::poll(milliseconds timeout) {
    rd_kafka_poll(connection_.handle(), static_cast<int>(timeout.count()));
    dispatch();
}

void KafkaProducer::wait_all(std::string_view what) {
    const auto start = std::chrono::steady_clock::now();
    while (in_flight_ > 0) {
        // Flushing sends lingering records, serves reports, and returns early when all have arrived.
        rd_kafka_flush(connection_.handle(), static_cast<int>(poll_turn.count()));
        dispatch();
        connection_.check_fatal();
        // Records time out at the same deadline by themselves; this catches the case that they do not.
        if (std::chrono::steady_clock::now() - start > connection_.config().deadline_later + milliseconds(10'000)) {
            throw connection_.away(what, connection_.config().deadline_later);
        }
    }
}

}  // namespace lorry::consumer
