// Makes the parts of settings, and asks each whether it goes on.
#include "ops/serve/services.h"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "consumer/kafka/batches/folder_claim.h"
#include "ops/command.h"
#include "ops/event_log.h"
#include "ops/kafka_settings.h"
#include "schema/secret.h"

namespace lorry::ops {
namespace {

constexpr std::chrono::hours longest_call{24};  // that may be repeated, if calls have no time-out

std::optional<std::chrono::milliseconds> timeout_of(const Settings& settings) {
    return settings.call_timeout.count() > 0 ? std::optional(settings.call_timeout) : std::nullopt;
}

std::unique_ptr<Callers> callers_of(const Services::Options& options) {
    if (options.settings.insecure_no_keys) return nullptr;
    return std::make_unique<Callers>(Callers::Options{
        .settings = options.settings, .kafka = options.kafka, .topics = topics_of(options.settings), .deadline = options.deadline});
}

std::unique_ptr<consumer::AdapterTopic> registered_of(const Services::Options& options) {
    if (options.adapters != nullptr) return nullptr;
    return std::make_unique<consumer::AdapterTopic>(
        options.kafka,
        consumer::AdapterTopic::Options{
            .topic = topics_of(options.settings).adapters(), .adapters_root = {}, .base_names = {"base", options.base_name}});
}

consumer::BatchRun::Options batch_run_of(const Services::Options& options) {
    consumer::BatchRun::Options run{
        .base_name = options.base_name, .line_bytes_max = options.settings.job_bytes_max.count, .ahead = options.settings.batch_ahead};
    if (options.partition_bytes_max) run.ahead_bytes = static_cast<std::int64_t>(*options.partition_bytes_max);
    return run;
}

}  // namespace

UsageLedger::UsageLedger(const Settings& settings, const consumer::KafkaConfig& kafka)
    : ledger_(
          consumer::Ledger::start(kafka, {.file = settings.usage_ledger, .topics = topics_of(settings), .days = settings.ledger_days})) {
    if (!ledger_) {
        throw UsageError(
            fmt::format("--usage-ledger {}: another process keeps it; give this gateway a file of its own", settings.usage_ledger));
    }
    reader_.emplace(schema::Store::open(settings.usage_ledger, schema::Store::Mode::reader));
}

Batches::Batches(const consumer::KafkaConfig& kafka, const Settings& settings, consumer::BatchRun::Options run,
                 consumer::Clock::time_point deadline, bool is_alone)
    : store_(settings.files), topics_(kafka, topics_of(settings)), file_bytes_max_(settings.file_bytes_max.count) {
    topics_.wait_until_read(deadline);
    if (is_alone) {
        store_.mark(schema::draw_random_id(), "Contents of files while one process runs.");
    } else if (const auto why = consumer::claim_folder(store_, topics_)) {
        throw UsageError(fmt::format("--files: {}", *why));
    }
    owner_.emplace(kafka, consumer::BatchOwner::Options{.topics = topics_of(settings), .run = std::move(run)}, topics_, store_);
}

StoredRequests::Backends Batches::backends(Metrics& metrics) {
    return {.files = store_,
            .batches = topics_,
            .file_bytes_max = file_bytes_max_,
            .on_failure =
                [&metrics](const std::string& why) {
                    metrics.on_files_failed();
                    log_warning("files_failed", {{"why", why}});
                },
            .on_upload = [&metrics](std::int64_t bytes) { metrics.on_upload(bytes); }};
}

void Batches::check() const {
    topics_.check();
    if (const auto failure = owner_->failure()) throw std::runtime_error(*failure);
}

Services::Services(const Options& options)
    : callers_(callers_of(options)),
      usage_(options.settings.usage_ledger.empty() ? nullptr : std::make_unique<UsageLedger>(options.settings, options.kafka)),
      registered_(registered_of(options)),
      adapters_(registered_ ? *registered_ : *options.adapters),
      calls_(options.kafka_of_calls != nullptr ? *options.kafka_of_calls : options.kafka,
             {.topics = topics_of(options.settings),
              .calls_max = static_cast<std::size_t>(options.settings.calls_max),
              .call_bytes_max = options.settings.job_bytes_max.count,
              .partition_bytes_max = options.partition_bytes_max,
              .call_timeout = timeout_of(options.settings)}),
      repeatable_(options.kafka,
                  {.topic = topics_of(options.settings).repeats(), .running_for = timeout_of(options.settings).value_or(longest_call)},
                  calls_),
      gateways_(options.settings.gateways) {
    if (registered_) registered_->wait_until_read(options.deadline);
    repeatable_.wait_until_read(options.deadline);
    if (!options.settings.files.empty())
        batches_ = std::make_unique<Batches>(options.kafka, options.settings, batch_run_of(options), options.deadline, options.is_alone);
    // Limits are those of keys.
    if (gateways_ == 0 && callers_) {
        live_ = std::make_unique<consumer::LiveGateways>(options.kafka,
                                                         consumer::LiveGateways::Options{.topic = topics_of(options.settings).repeats()});
    }
}

std::function<std::vector<schema::UsageRow>(const schema::UsageFilter&)> Services::usage() const {
    if (!usage_) return {};
    return [this](const schema::UsageFilter& filter) { return usage_->read(filter); };
}

std::optional<StoredRequests::Backends> Services::stored(Metrics& metrics) {
    return batches_ ? std::optional(batches_->backends(metrics)) : std::nullopt;
}

MetricSources Services::sources() const {
    MetricSources sources{.member = {}, .ledger = {}, .calls = [this] { return calls_.stats(); }};
    if (usage_) sources.ledger = [this] { return usage_->stats(); };
    if (batches_) sources.batches = [this] { return batches_->stats(); };
    return sources;
}

void Services::check() {
    if (const auto failure = calls_.failure()) throw std::runtime_error(*failure);
    if (registered_) registered_->check();
    repeatable_.check();
    if (batches_) batches_->check();
    if (callers_) callers_->check();
    if (live_) live_->check();
}

void Services::drain(std::chrono::milliseconds patience) {
    live_.reset();
    if (batches_) batches_->close();
    calls_.close(patience);
}

void Services::close() {
    calls_.close(std::chrono::milliseconds(0));
    repeatable_.close();
}

}  // namespace lorry::ops
