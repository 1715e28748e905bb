// `lorry serve`: the OpenAI API over HTTP, for many clients. It computes nothing: calls go to the workers by Kafka, and come back. Any
// number of these run side by side.
#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include <fmt/format.h>

#include "consumer/batches/folder_store.h"
#include "consumer/kafka/batches/batch_owner.h"
#include "consumer/kafka/batches/batch_topics.h"
#include "consumer/kafka/calls/kafka_calls.h"
#include "consumer/kafka/calls/repeatable_calls.h"
#include "consumer/kafka/follow/adapter_topic.h"
#include "consumer/kafka/follow/ledger.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/engine_setup.h"
#include "ops/event_log.h"
#include "ops/http/tls.h"
#include "ops/kafka_settings.h"
#include "ops/metrics.h"
#include "ops/price_file.h"
#include "ops/serve/callers.h"
#include "ops/serve/gateway_setup.h"
#include "ops/signals.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

// Brokers may be away for long: calls are refused meanwhile, and taken again afterwards.
constexpr std::chrono::hours patience{24 * 365};
constexpr std::chrono::milliseconds check_pause{200};  // between two looks for a failure, and for files that changed
constexpr std::chrono::hours day{24};
constexpr std::chrono::seconds closing_patience{45};  // after the drain

std::string base_name_to_serve(const Settings& settings) {
    if (settings.base_name.empty() && settings.model.empty())
        throw UsageError("the base model's name is not known: pass --base-name NAME, or set `base_name` or `model` in lorry.toml");
    return base_name_of(settings);
}

HostAndPort where_to_listen(const Settings& settings) {
    const auto where = parse_host_and_port(settings.listen);
    if (!where) throw UsageError(fmt::format("--listen {}: write HOST:PORT", settings.listen));
    if (!settings.insecure_no_keys) return *where;
    check_nobody_is_known(settings);
    constexpr std::array own = {"127.0.0.1", "::1", "localhost"};
    if (std::ranges::find(own, where->host) == own.end()) {
        throw UsageError(fmt::format(
            "--listen {}: without keys a gateway listens on 127.0.0.1, [::1] or localhost only, as whoever reaches it could use it",
            settings.listen));
    }
    return *where;
}

// nullptr: without TLS.
std::unique_ptr<TlsIdentity> tls_of(const Settings& settings) {
    if (settings.tls_cert.empty() != settings.tls_key.empty())
        throw UsageError("TLS takes a certificate and its key: pass both --tls-cert and --tls-key, or neither");
    if (settings.tls_cert.empty()) return nullptr;
    return std::make_unique<TlsIdentity>(TlsFiles{.certificate = settings.tls_cert, .key = settings.tls_key});
}

std::string expiry_of(const TlsIdentity& tls) { return show_time(std::chrono::floor<std::chrono::milliseconds>(tls.expires())); }

// Takes a certificate that was renewed. One that cannot be used is no reason to end: clients are served with the former.
void renew(TlsIdentity& tls) {
    try {
        if (tls.refresh()) log_event("certificate_renewed", {{"expires", expiry_of(tls)}});
    } catch (const std::runtime_error& error) {
        log_warning("certificate_not_renewed", {{"why", error.what()}});
    }
}

// The ledger of `usage_ledger`.
class UsageLedger {
public:
    UsageLedger(const Settings& settings, const consumer::KafkaConfig& kafka)
        : file_(settings.usage_ledger),
          ledger_(consumer::Ledger::start(kafka, {.file = file_, .topics = topics_of(settings), .days = settings.ledger_days})) {
        if (!ledger_) {
            throw UsageError(fmt::format("--usage-ledger {}: another process keeps it; give this gateway a file of its own", file_));
        }
        reader_.emplace(schema::Store::open(file_, schema::Store::Mode::reader));
    }
    // One thread.
    std::vector<schema::UsageRow> read(const schema::UsageFilter& filter) const { return reader_->usage(filter); }
    consumer::Ledger::Stats stats() const { return ledger_->stats(); }

private:
    std::string file_;
    std::unique_ptr<consumer::Ledger> ledger_;
    std::optional<schema::Store> reader_;
};

// Ends the events of calls before the gateway that hears of them, however serving ends.
class Closing {
public:
    Closing(consumer::KafkaCalls& calls, consumer::RepeatableCalls& repeatable) : calls_(calls), repeatable_(repeatable) {}
    ~Closing() {
        calls_.close(std::chrono::milliseconds(0));
        repeatable_.close();
    }
    Closing(const Closing&) = delete;
    Closing& operator=(const Closing&) = delete;

private:
    consumer::KafkaCalls& calls_;
    consumer::RepeatableCalls& repeatable_;
};

// Files and batches, if there is a folder for them.
class Batches {
public:
    // Throws like KafkaError where a topic is missing or cannot be read, and std::runtime_error for the folder.
    Batches(const consumer::KafkaConfig& kafka, const schema::Topics& topics, const Settings& settings, const std::string& base_name,
            consumer::Clock::time_point deadline)
        : store_(settings.files), topics_(kafka, topics), file_bytes_max_(settings.file_bytes_max.count) {
        topics_.wait_until_read(deadline);
        owner_.emplace(kafka,
                       consumer::BatchOwner::Options{.topics = topics,
                                                     .run = {.base_name = base_name, .line_bytes_max = settings.job_bytes_max.count}},
                       topics_, store_);
    }
    StoredRequests::Backends backends() { return {.files = store_, .batches = topics_, .file_bytes_max = file_bytes_max_}; }
    void check() const {
        topics_.check();
        if (const auto failure = owner_->failure()) throw std::runtime_error(*failure);
    }
    // Leaves its batches to the other gateways.
    void close() { owner_.reset(); }

private:
    consumer::FolderStore store_;
    consumer::BatchTopics topics_;
    const std::size_t file_bytes_max_;
    std::optional<consumer::BatchOwner> owner_;
};

std::int64_t seconds_now() {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class ServeCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        configuration_.declare(app,
                               {SettingScope::calls, SettingScope::gateway, SettingScope::kafka, SettingScope::usage, SettingScope::log},
                               {"base_name", "job_bytes_max", "drain_timeout", "ledger_days"});
    }
    ExitCode run() override;

private:
    HttpAnswer health(const consumer::KafkaCalls& calls) const;
    // What may fail while calls are served.
    struct Served {
        const consumer::KafkaCalls& calls;
        const consumer::AdapterTopic& adapters;
        const consumer::RepeatableCalls& repeatable;
        std::optional<Callers>& callers;
        const std::optional<Batches>& batches;
        TlsIdentity* tls;
    };
    void wait_for_end(SignalWatcher& signals, const Settings& settings, const Served& served);

    Configuration configuration_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::atomic<bool> is_draining_ = false;
};

HttpAnswer ServeCommand::health(const consumer::KafkaCalls& calls) const {
    if (is_draining_) return {.status = 503, .body = "draining\n"};
    if (calls.stats().is_away) return {.status = 503, .body = "no broker can be reached\n"};
    return {.body = "running\n"};
}

// Waits for the first signal. Throws if calls can no longer be served.
void ServeCommand::wait_for_end(SignalWatcher& signals, const Settings& settings, const Served& served) {
    const SignalWatcher::Armed armed(
        signals,
        [&] {
            log_event("gateway_stopping", {{"drain_seconds", seconds_of(settings.drain_timeout)}});
            is_draining_ = true;
            changed_.notify_all();
        },
        settings.drain_timeout + closing_patience);
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, check_pause, [&] { return is_draining_.load(); })) {
        if (const auto failure = served.calls.failure()) throw std::runtime_error(*failure);
        served.adapters.check();
        if (served.batches) served.batches->check();
        served.repeatable.check();
        if (served.callers) served.callers->check();
        if (served.tls != nullptr) renew(*served.tls);
    }
}

ExitCode ServeCommand::run() {
    SignalWatcher signals;
    const Settings settings = configuration_.load();
    const HostAndPort where = where_to_listen(settings);
    const std::string base_name = base_name_to_serve(settings);
    const std::unique_ptr<TlsIdentity> tls = tls_of(settings);
    consumer::KafkaConfig kafka = kafka_config_of(settings);
    kafka.deadline_later = patience;
    const schema::Topics topics = topics_of(settings);
    start_event_log(settings.log_level);

    Metrics metrics(program_version(), 0);
    const consumer::Clock::time_point deadline = consumer::Clock::now() + settings.deadline_start;
    const std::optional<schema::Prices> prices = prices_of(settings);
    std::optional<Callers> callers;
    if (!settings.insecure_no_keys)
        callers.emplace(Callers::Options{.settings = settings, .kafka = kafka, .topics = topics, .deadline = deadline});
    std::optional<UsageLedger> usage;
    UsagePages::Options usage_pages{.prices = prices};
    if (!settings.usage_ledger.empty()) {
        usage.emplace(settings, kafka);
        usage_pages.read = [&](const schema::UsageFilter& filter) { return usage->read(filter); };
    }
    consumer::AdapterTopic adapters(kafka, {.topic = topics.adapters(), .adapters_root = {}, .base_names = {"base", base_name}});
    consumer::KafkaCalls calls(kafka,
                               {.topics = topics,
                                .calls_max = static_cast<std::size_t>(settings.calls_max),
                                .call_bytes_max = settings.job_bytes_max.count,
                                .call_timeout = settings.call_timeout.count() > 0 ? std::optional(settings.call_timeout) : std::nullopt});
    consumer::RepeatableCalls repeatable(
        kafka, {.topic = topics.repeats(), .running_for = settings.call_timeout.count() > 0 ? settings.call_timeout : day}, calls);
    adapters.wait_until_read(deadline);
    repeatable.wait_until_read(deadline);
    std::optional<Batches> batches;
    if (!settings.files.empty()) batches.emplace(kafka, topics, settings, base_name, deadline);
    const std::unique_ptr<Gateway> gateway =
        listen({.host = where.host,
                .port = where.port,
                .base_name = base_name,
                .created = seconds_now(),
                .authenticator = callers ? &callers->authenticator() : nullptr,
                .remembers = true,
                .limits = http_limits_of(settings),
                .tls = tls.get(),
                .adapters = [&] { return adapters.names(); },
                .health = [&] { return health(calls); },
                .metrics =
                    [&] {
                        MetricSources sources{.member = {}, .ledger = {}, .calls = [&] { return calls.stats(); }};
                        if (usage) sources.ledger = [&] { return usage->stats(); };
                        return HttpAnswer{.type = Metrics::content_type, .body = metrics.text(sources)};
                    },
                .usage = usage_pages,
                .daily_tokens = callers ? &callers->daily_tokens() : nullptr,
                .stored = batches ? std::optional(batches->backends()) : std::nullopt,
                .on_request =
                    [&](const RequestReport& report) {
                        metrics.on_request(report.url, report.status, report.took);
                        log_request(report);
                    }},
               repeatable, "--listen");
    const Closing closing(calls, repeatable);
    gateway->set_share(1.0 / static_cast<double>(settings.gateways));
    log_event("gateway_started", {{"address", fmt::format("{}://{}:{}/v1", tls ? "https" : "http", where.host, gateway->port())},
                                  {"port", gateway->port()},
                                  {"brokers", kafka.brokers},
                                  {"prefix", topics.prefix},
                                  {"base", base_name},
                                  {"adapters", static_cast<std::int64_t>(adapters.counters().known)},
                                  {"files", settings.files},
                                  {"keys", callers ? callers->describe() : "none: for this machine alone"},
                                  {"certificate_expires", tls ? expiry_of(*tls) : "no TLS"}});
    wait_for_end(
        signals, settings,
        {.calls = calls, .adapters = adapters, .repeatable = repeatable, .callers = callers, .batches = batches, .tls = tls.get()});
    if (batches) batches->close();
    calls.close(settings.drain_timeout);
    log_event("gateway_stopped", {{"calls", calls.stats().sent}});
    return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> make_serve_command() { return std::make_unique<ServeCommand>(); }

}  // namespace lorry::ops
