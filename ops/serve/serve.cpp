// `lorry serve`: the OpenAI API over HTTP, for many clients. It computes nothing: calls go to the workers by Kafka, and come back. Any
// number of these run side by side.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include <fmt/format.h>

#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/engine_setup.h"
#include "ops/event_log.h"
#include "ops/http/tls.h"
#include "ops/kafka_settings.h"
#include "ops/metrics.h"
#include "ops/price_file.h"
#include "ops/serve/gateway_setup.h"
#include "ops/serve/services.h"
#include "ops/signals.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

// Brokers may be away for long: calls are refused meanwhile, and taken again afterwards.
constexpr std::chrono::hours patience{24 * 365};
constexpr std::chrono::milliseconds check_pause{200};  // between two looks for a failure, and for files that changed
constexpr std::chrono::seconds closing_patience{45};   // after the drain

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

class ServeCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        configuration_.declare(app,
                               {SettingScope::calls, SettingScope::gateway, SettingScope::kafka, SettingScope::usage, SettingScope::log},
                               {"base_name", "job_bytes_max", "drain_timeout", "ledger_days"});
    }
    ExitCode run() override;

private:
    HttpAnswer health(const Services& services) const;
    // tls: nullptr: without.
    void wait_for_end(SignalWatcher& signals, const Settings& settings, Services& services, Gateway& gateway, TlsIdentity* tls);

    Configuration configuration_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::atomic<bool> is_draining_ = false;
};

HttpAnswer ServeCommand::health(const Services& services) const {
    if (is_draining_) return {.status = 503, .body = "draining\n"};
    if (services.stats().is_away) return {.status = 503, .body = "no broker can be reached\n"};
    return {.body = "running\n"};
}

// Waits for the first signal. Throws if calls can no longer be served.
void ServeCommand::wait_for_end(SignalWatcher& signals, const Settings& settings, Services& services, Gateway& gateway, TlsIdentity* tls) {
    const SignalWatcher::Armed armed(
        signals,
        [&] {
            log_event("gateway_stopping", {{"drain_seconds", seconds_of(settings.drain_timeout)}});
            is_draining_ = true;
            changed_.notify_all();
        },
        settings.drain_timeout + closing_patience);
    std::int64_t gateways = std::max<std::int64_t>(1, settings.gateways);
    gateway.set_share(1.0 / static_cast<double>(gateways));
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, check_pause, [&] { return is_draining_.load(); })) {
        services.check();
        if (services.gateways() != gateways) {
            gateways = services.gateways();
            gateway.set_share(1.0 / static_cast<double>(gateways));
            log_event("gateways_changed", {{"gateways", gateways}});
        }
        if (tls != nullptr) renew(*tls);
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
    start_event_log(settings.log_level);

    Metrics metrics(program_version(), 0);
    const std::optional<schema::Prices> prices = prices_of(settings);
    Services services(
        {.settings = settings, .kafka = kafka, .base_name = base_name, .deadline = consumer::Clock::now() + settings.deadline_start});
    const Callers* callers = services.callers();
    const std::unique_ptr<Gateway> gateway =
        listen({.host = where.host,
                .port = where.port,
                .base_name = base_name,
                .created = start_time(),
                .authenticator = callers != nullptr ? &callers->authenticator() : nullptr,
                .shares_adapters = settings.share_adapters,
                .remembers = true,
                .limits = http_limits_of(settings),
                .tls = tls.get(),
                .adapters = [&] { return services.adapters().names(); },
                .health = [&] { return health(services); },
                .metrics = [&] { return HttpAnswer{.type = Metrics::content_type, .body = metrics.text(services.sources())}; },
                .usage = {.read = services.usage(), .prices = prices},
                .daily_tokens = callers != nullptr ? &callers->daily_tokens() : nullptr,
                .stored = services.stored(metrics),
                .on_request =
                    [&](const RequestReport& report) {
                        metrics.on_request(report.url, report.status, report.took);
                        log_request(report);
                    }},
               services.calls(), "--listen");
    const ClosingServices closing(services);
    log_event("gateway_started", {{"address", fmt::format("{}://{}:{}/v1", tls ? "https" : "http", where.host, gateway->port())},
                                  {"port", gateway->port()},
                                  {"brokers", kafka.brokers},
                                  {"prefix", topics_of(settings).prefix},
                                  {"base", base_name},
                                  {"adapters", std::ssize(services.adapters().names())},
                                  {"files", settings.files},
                                  {"keys", callers != nullptr ? callers->describe() : "none: for this machine alone"},
                                  {"certificate_expires", tls ? expiry_of(*tls) : "no TLS"}});
    wait_for_end(signals, settings, services, *gateway, tls.get());
    services.drain(settings.drain_timeout);
    log_event("gateway_stopped", {{"calls", services.stats().sent}});
    return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> make_serve_command() { return std::make_unique<ServeCommand>(); }

}  // namespace lorry::ops
