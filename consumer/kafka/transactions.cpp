// Runs transaction steps with deadlines and classifies their errors (StepEnd).
#include "consumer/kafka/transactions.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>

#include "consumer/backoff.h"
#include "consumer/kafka/fault_point.h"
#include "consumer/kafka/times.h"

namespace lorry::consumer {

namespace {

using std::chrono::milliseconds;
using Timer = std::chrono::steady_clock;

constexpr milliseconds socket_timeout_max{10'000};
constexpr milliseconds step_backoff_first{5};

// Kafka's API keys of the requests that change a transaction's state (protocol guide, "Api Keys").
constexpr std::int16_t end_transaction = 26;
bool changes_transaction(std::int16_t api) {
    constexpr std::int16_t add_partitions = 24;
    constexpr std::int16_t add_offsets = 25;
    constexpr std::int16_t commit_offsets = 28;
    return api == add_partitions || api == add_offsets || api == end_transaction || api == commit_offsets;
}

bool left_unanswered(rd_kafka_resp_err_t error) {
    switch (error) {
        case RD_KAFKA_RESP_ERR__TIMED_OUT:
        case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
        case RD_KAFKA_RESP_ERR__TRANSPORT: return true;
        default: return false;
    }
}

bool is_fencing(rd_kafka_resp_err_t error) {
    return error == RD_KAFKA_RESP_ERR__FENCED || error == RD_KAFKA_RESP_ERR_PRODUCER_FENCED ||
           error == RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH;
}

KafkaSettings settings_of(const TransactionalProducer::Options& options) {
    KafkaSettings settings = producer_settings(options.limits);
    settings.emplace_back("transactional.id", options.id);
    settings.emplace_back("transaction.timeout.ms", std::to_string(options.timeout.count()));
    settings.emplace_back("message.timeout.ms", std::to_string(options.timeout.count()));
    settings.emplace_back("linger.ms", "1");  // commits wait for lingering records
    // Must not be longer than the transaction timeout.
    settings.emplace_back("socket.timeout.ms", std::to_string(std::min(options.timeout, socket_timeout_max).count()));
    return settings;
}

bool is_timeout(rd_kafka_resp_err_t error) { return error == RD_KAFKA_RESP_ERR__TIMED_OUT || error == RD_KAFKA_RESP_ERR__MSG_TIMED_OUT; }

}  // namespace

TransactionalProducer::TransactionalProducer(const KafkaConfig& config, Options options)
    : options_(std::move(options)),
      connection_(
          config, KafkaConnection::Kind::producer, settings_of(options_),
          [this](rd_kafka_conf_t* conf) {
              rd_kafka_conf_set_dr_msg_cb(conf, on_report);
              rd_kafka_conf_interceptor_add_on_new(conf, "lorry", on_new, this);
          },
          this) {}

rd_kafka_resp_err_t TransactionalProducer::on_new(rd_kafka_t* client, const rd_kafka_conf_t*, void* opaque, char*, std::size_t) {
    rd_kafka_interceptor_add_on_broker_state_change(client, "lorry", on_broker_state, opaque);
    rd_kafka_interceptor_add_on_request_sent(client, "lorry", on_sent, opaque);
    return rd_kafka_interceptor_add_on_response_received(client, "lorry", on_response, opaque);
}

// On the thread of that broker, when the whole request is on its way: the broker carries it out whatever becomes of us.
rd_kafka_resp_err_t TransactionalProducer::on_sent(rd_kafka_t*, int, const char*, std::int32_t, std::int16_t api, std::int16_t,
                                                   std::int32_t, std::size_t, void* opaque) {
    // An abort is such a request as well.
    if (api == end_transaction && static_cast<TransactionalProducer*>(opaque)->is_committing_) fault_point("outbox.committing");
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

// On one of the client's threads.
rd_kafka_resp_err_t TransactionalProducer::on_response(rd_kafka_t*, int, const char*, std::int32_t, std::int16_t api, std::int16_t,
                                                       std::int32_t, std::size_t, std::int64_t, rd_kafka_resp_err_t error, void* opaque) {
    if (changes_transaction(api) && left_unanswered(error)) static_cast<TransactionalProducer*>(opaque)->stray_request_ = true;
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

// On the thread of that broker.
rd_kafka_resp_err_t TransactionalProducer::on_broker_state(rd_kafka_t*, std::int32_t broker, const char*, const char* name, int port,
                                                           const char* state, void* opaque) {
    auto* self = static_cast<TransactionalProducer*>(opaque);
    // A bootstrap address, which is dropped as soon as the brokers are known. (The coordinator has no broker number either, but no port.)
    if (broker < 0 && port != 0) return RD_KAFKA_RESP_ERR_NO_ERROR;
    const std::string_view now = state;
    const std::scoped_lock lock(self->brokers_mutex_);
    if (now == "UP") self->brokers_up_.emplace(name, port);
    if (now == "DOWN" && self->brokers_up_.erase({name, port}) > 0) self->lost_broker_ = true;
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

void TransactionalProducer::on_report(rd_kafka_t*, const rd_kafka_message_t* message, void* opaque) {
    auto* self = static_cast<TransactionalProducer*>(static_cast<KafkaContext*>(opaque)->owner);
    CHECK(self->in_flight_ > 0, "a delivery report without a record");
    --self->in_flight_;
    auto& error = self->errors_.at(reinterpret_cast<std::uint64_t>(message->_private));  // NOLINT: send() put a number there
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) error = message->err;
    self->delivered_.note(*message);
}

StepResult TransactionalProducer::result_of(const char* what, const rd_kafka_error_t& error) const {
    const auto code = rd_kafka_error_code(&error);
    const std::string& brokers = connection_.config().brokers;
    // The client does not always say which topic the error is about.
    const std::string text = rd_kafka_error_string(&error) + advice_for(code, fmt::format("{}", fmt::join(topics_, ", ")));
    if (is_configuration_error(code)) {
        throw KafkaError(fmt::format("Kafka at {}: {} (transactional id {}, writing to {}): {}", brokers, what, options_.id,
                                     fmt::join(topics_, ", "), text));
    }
    if (code == RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT) {
        throw KafkaError(fmt::format("Kafka at {}: {}: the brokers' transaction.max.timeout.ms is below {} ms: raise it", brokers, what,
                                     options_.timeout.count()));
    }
    StepResult result{.reason = fmt::format("{}: {}", what, text), .timed_out = is_timeout(code)};
    if (is_fencing(code)) {
        result.end = StepEnd::fenced;
    } else if (rd_kafka_error_is_fatal(&error) == 0 && rd_kafka_error_txn_requires_abort(&error) != 0) {
        result.end = StepEnd::aborting;
    } else {
        result.end = StepEnd::unknown;
    }
    return result;
}

// Repeats the call while its error is retriable.
template <typename Call>
StepResult TransactionalProducer::step(const char* what, milliseconds deadline, const Call& call) {
    const auto start = Timer::now();
    for (Backoff backoff(step_backoff_first, backoff_max);;) {
        const ErrorHandle error(call());
        if (!error) return {};
        if (rd_kafka_error_is_retriable(error.get()) == 0) return result_of(what, *error);
        const auto waited = std::chrono::duration_cast<milliseconds>(Timer::now() - start);
        if (waited >= deadline) {
            return {.end = StepEnd::unknown, .reason = fmt::format("{}: {}", what, rd_kafka_error_string(error.get())), .timed_out = true};
        }
        rd_kafka_poll(connection_.handle(), 0);
        std::this_thread::sleep_for(backoff.next());
    }
}

StepResult TransactionalProducer::open(milliseconds deadline) {
    const auto timeout = static_cast<int>(std::min(deadline, request_timeout).count());
    return step("opening transactions", deadline, [&] { return rd_kafka_init_transactions(connection_.handle(), timeout); });
}

StepResult TransactionalProducer::begin(std::size_t tags) {
    CHECK(in_flight_ == 0, "a transaction begins only after all records of the previous one were reported");
    errors_.assign(tags, RD_KAFKA_RESP_ERR_NO_ERROR);
    topics_.clear();
    return step("beginning a transaction", milliseconds(0), [&] { return rd_kafka_begin_transaction(connection_.handle()); });
}

rd_kafka_resp_err_t TransactionalProducer::send(const Produce& record) {
    if (!topics_.contains(record.topic)) topics_.emplace(record.topic);
    for (;;) {
        const auto error = produce(connection_.handle(), record);
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
            ++in_flight_;
            return error;
        }
        if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL) return errors_.at(record.tag) = error;
        rd_kafka_poll(connection_.handle(), static_cast<int>(poll_turn.count()));  // records time out at the latest
    }
}

StepResult TransactionalProducer::finish_sending() {
    const auto end = Timer::now() + options_.timeout + request_timeout;
    while (in_flight_ > 0) {
        rd_kafka_flush(connection_.handle(), static_cast<int>(poll_turn.count()));
        if (Timer::now() > end) return {.end = StepEnd::unknown, .reason = "records were not answered", .timed_out = true};
    }
    for (const auto error : errors_) {
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR) continue;
        // Asking makes the client notice when a topic exists again, so that the next attempt finds it.
        if (is_missing_topic(error)) {
            for (const std::string& topic : topics_) connection_.try_partition_count(topic);
        }
        // The transaction has failed too: committing it would return this error.
        const ErrorHandle as_error(rd_kafka_error_new(error, "%s", rd_kafka_err2str(error)));
        StepResult result = result_of("publishing results", *as_error);
        if (result.end == StepEnd::unknown) result.end = StepEnd::aborting;
        return result;
    }
    return {};
}

StepResult TransactionalProducer::send_offsets(const rd_kafka_consumer_group_metadata_t* group,
                                               const rd_kafka_topic_partition_list_t* offsets) {
    return step("sending offsets", options_.timeout, [&] {
        return rd_kafka_send_offsets_to_transaction(connection_.handle(), offsets, group, static_cast<int>(request_timeout.count()));
    });
}

StepResult TransactionalProducer::commit() {
    is_committing_ = true;
    // Not repeated: a commit that timed out may still be executed.
    StepResult result = step("committing", milliseconds(0),
                             [&] { return rd_kafka_commit_transaction(connection_.handle(), static_cast<int>(options_.timeout.count())); });
    is_committing_ = false;
    return result;
}

StepResult TransactionalProducer::abort() {
    const auto call = [&] { return rd_kafka_abort_transaction(connection_.handle(), static_cast<int>(request_timeout.count())); };
    StepResult result = step("aborting", options_.timeout, call);
    if (result.end != StepEnd::done) return result;
    rd_kafka_flush(connection_.handle(), static_cast<int>(request_timeout.count()));  // reports of records that the abort discarded
    return in_flight_ == 0 ? result
                           : StepResult{.end = StepEnd::unknown, .reason = "aborting: records were not answered", .timed_out = true};
}

}  // namespace lorry::consumer
