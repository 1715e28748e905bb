// `lorry worker`: one member of the consumer group, from Kafka to the engine and back, until SIGTERM.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <iostream>
#include <thread>

#include <fmt/format.h>

#include "consumer/kafka/admin.h"
#include "consumer/kafka/follow/adapter_topic.h"
#include "consumer/kafka/follow/control_topic.h"
#include "consumer/kafka/follow/ledger.h"
#include "consumer/kafka/member.h"
#include "consumer/pipeline.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/engine_setup.h"
#include "ops/event_log.h"
#include "ops/kafka_settings.h"
#include "ops/metrics.h"
#include "ops/signals.h"
#include "ops/units.h"
#include "ops/worker/health.h"
#include "ops/worker/health_server.h"
#include "ops/worker/worker_observer.h"
#include "ops/worker/worker_setup.h"

namespace lorry::ops {
namespace {

using schema::Json;

constexpr std::chrono::seconds embedded_session_timeout{4};

std::string host_name() {
    std::array<char, 256> name{};
    if (gethostname(name.data(), name.size() - 1) != 0) return "worker";
    return name.data();
}

// Waits until the ledger has read what was committed last, so that it shows the worker's last jobs. Gives up after a few seconds, as the
// ledger is only a view.
void catch_up(const consumer::Ledger& ledger) {
    constexpr std::chrono::milliseconds quiet{400};
    constexpr std::chrono::seconds patience{4};
    const auto deadline = std::chrono::steady_clock::now() + patience;
    auto changed = std::chrono::steady_clock::now();
    std::uint64_t applied = ledger.stats().applied;
    while (std::chrono::steady_clock::now() < std::min(deadline, changed + quiet)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        const consumer::Ledger::Stats stats = ledger.stats();
        if (stats.failing) return;
        if (stats.applied != applied || stats.behind > 0) changed = std::chrono::steady_clock::now();
        applied = stats.applied;
    }
}

// A second worker on a machine finds the default port taken and goes on without the pages; a port that was set must be free.
std::unique_ptr<HealthServer> serve_pages(const HealthServer::Options& options) {
    if (options.address == "off") return nullptr;
    try {
        return std::make_unique<HealthServer>(options);
    } catch (const std::runtime_error& error) {
        if (options.address != Settings().metrics_address) throw;
        log_warning("pages_not_served", {{"message", error.what()}});
        return nullptr;
    }
}

void log_embedded_broker() {
    log_event("embedded_broker",
              {{"message",
                "the embedded broker keeps nothing, holds at most 5 MiB per partition (older jobs and results vanish) and forgets the "
                "offsets of transactions, so results are published at least once: use it only for trying things out"}});
}

void log_drained(const consumer::KafkaMember::Stats& stats) {
    log_event("drained", {{"completions", std::uint64_t{stats.sink.completions}},
                          {"dead_letters", std::uint64_t{stats.sink.dead_letters}},
                          {"commits", std::uint64_t{stats.sink.commits}},
                          {"aborts", std::uint64_t{stats.commits.aborts}}});
}

class WorkerCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        configuration_.declare(app, {SettingScope::model, SettingScope::jobs, SettingScope::kafka, SettingScope::ledger,
                                     SettingScope::service, SettingScope::log});
    }
    ExitCode run() override;

private:
    void haul(const Settings& settings, const consumer::KafkaConfig& kafka, SignalWatcher& signals);

    Configuration configuration_;
};

ExitCode WorkerCommand::run() {
    SignalWatcher signals;
    const Settings settings = configuration_.load();
    const consumer::KafkaConfig kafka = kafka_config_of(settings);
    start_event_log(settings.log_level);
    haul(settings, kafka, signals);
    return ExitCode::done;
}

// Runs the pipeline until it ends. The first signal begins the drain.
void run_until_stopped(consumer::Pipeline& pipeline, const Settings& settings, SignalWatcher& signals, std::atomic<Phase>& phase) {
    // A client that is being closed may wait for absent brokers forever.
    constexpr std::chrono::seconds closing_patience{45};
    const SignalWatcher::Armed armed(
        signals,
        [&] {
            phase = Phase::draining;
            log_event("worker_stopping", {{"drain_seconds", seconds_of(settings.drain_timeout)}});
            pipeline.request_stop();
        },
        settings.drain_timeout + closing_patience);
    pipeline.run();
}

void WorkerCommand::haul(const Settings& settings, const consumer::KafkaConfig& kafka, SignalWatcher& signals) {
    const schema::Topics topics = topics_of(settings);
    Metrics metrics(program_version(), settings.max_batch);
    std::atomic<Phase> phase = Phase::starting;
    // Set before the phase becomes `running`, and read only from then on.
    MetricSources sources;
    std::unique_ptr<HealthServer> server =
        serve_pages({.address = settings.metrics_address,
                     .metrics = [&] { return metrics.text(phase == Phase::starting ? MetricSources{} : sources); },
                     .health = [&] { return health_of(phase, std::chrono::steady_clock::now() - metrics.last_poll(), sources); }});

    EngineSetup setup(settings);
    const std::string base_name = setup.reply().base_name;
    const std::string group = group_of(settings);
    const std::string member = settings.member.empty() ? host_name() : settings.member;
    std::cerr << setup.describe() << std::flush;

    const consumer::Clock::time_point deadline = consumer::Clock::now() + settings.deadline_start;
    consumer::AdapterTopic adapters(kafka,
                                    {.topic = topics.adapters(), .adapters_root = settings.adapters, .base_names = {"base", base_name}});
    consumer::ControlTopic cancels(kafka, {.topics = topics});
    const std::unique_ptr<consumer::Ledger> ledger =
        consumer::Ledger::start(kafka, {.file = ledger_file_of(settings), .topics = topics, .days = settings.ledger_days});
    consumer::KafkaMember::Options options = member_options(settings, group, member);
    // That broker knows no static members: a worker that was killed and starts again waits for its own old session. It promises nothing
    // that a short session could break.
    if (consumer::describe_cluster(kafka).embedded) options.session_timeout = embedded_session_timeout;
    consumer::KafkaMember kafka_member(kafka, options);
    adapters.wait_until_read(deadline);
    cancels.wait_until_read(deadline);

    WorkerObserver observer(metrics, ledger.get());
    consumer::Pipeline pipeline({.source = kafka_member.source(),
                                 .sink = kafka_member.sink(),
                                 .adapters = adapters,
                                 .cancels = cancels,
                                 .preparer = setup.preparer(),
                                 .engine = setup.engine(),
                                 .reply = setup.reply(),
                                 .observer = observer},
                                worker_pipeline_options(settings, setup.engine(), member));
    sources.member = [&] { return kafka_member.stats(); };
    if (ledger) sources.ledger = [&] { return ledger->stats(); };
    phase = Phase::running;
    // The pages refer to objects that are declared after the server, so the server goes first.
    struct Ending {
        std::unique_ptr<HealthServer>& server;
        ~Ending() { server.reset(); }
    } const ending{server};

    Json::Object started = {{"member", member},
                            {"group", group},
                            {"brokers", kafka.brokers},
                            {"prefix", topics.prefix},
                            {"base", base_name},
                            {"delivery", kafka_member.is_exactly_once() ? "exactly once" : "at least once"},
                            {"system_fingerprint", setup.reply().system_fingerprint},
                            {"adapters", static_cast<std::int64_t>(adapters.counters().known)},
                            {"ledger", ledger ? ledger_file_of(settings) : std::string("kept by another process")}};
    if (server) started.emplace_back("metrics_port", server->port());
    log_event("worker_started", std::move(started));
    if (kafka_member.is_embedded()) log_embedded_broker();
    run_until_stopped(pipeline, settings, signals, phase);
    if (ledger) catch_up(*ledger);
    log_drained(kafka_member.stats());
}

}  // namespace

std::unique_ptr<Command> make_worker_command() { return std::make_unique<WorkerCommand>(); }

}  // namespace lorry::ops
