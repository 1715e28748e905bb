// `lorry up`: the OpenAI API on this machine, for trying out: a gateway, a worker and the embedded broker between them in one process, so
// that what runs is what runs over Kafka. Called by the command table.
#include <CLI/CLI.hpp>
#include <atomic>
#include <iostream>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "consumer/kafka/broker.h"
#include "consumer/kafka/follow/control_topic.h"
#include "consumer/kafka/member.h"
#include "consumer/pipeline.h"
#include "consumer/reading_pace.h"
#include "ops/adapter_folders.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/engine_setup.h"
#include "ops/event_log.h"
#include "ops/gateway/gateway.h"
#include "ops/kafka_settings.h"
#include "ops/metrics.h"
#include "ops/serve/gateway_setup.h"
#include "ops/serve/services.h"
#include "ops/signals.h"
#include "ops/units.h"
#include "ops/up/temporary_files.h"
#include "ops/up/watch.h"
#include "ops/worker/health.h"
#include "ops/worker/worker_setup.h"

namespace lorry::ops {
namespace {

using consumer::Clock;

constexpr const char* host = "127.0.0.1";
constexpr const char* member_name = "up";
// How many bytes of a partition may wait for a worker. The broker holds 5 MiB of it.
constexpr std::size_t partition_bytes_max = std::size_t{2} << 20;
constexpr int calls_partitions = 8;  // 16 MiB of calls may wait
// The broker answers a fetch that finds nothing after this time, whatever is written meanwhile. Each costs some microseconds, so only what
// calls wait for is fetched as often as that.
constexpr const char* fetch_wait_ms = "25";
constexpr const char* fetch_wait_of_calls_ms = "3";
constexpr std::chrono::milliseconds rebalance_delay{1};  // nobody else joins the groups
constexpr std::chrono::seconds start_patience{30};
constexpr std::chrono::seconds broker_patience{30};       // it is in this process
constexpr std::chrono::seconds end_patience{30};          // after the drain
constexpr std::chrono::seconds last_results_patience{1};  // for the gateway to read what the worker wrote last

HttpAnswer answer_of(const Health& health) { return {.status = health.ok ? 200U : 503U, .body = health.state + "\n"}; }

std::string advice(int port, const engine::ModelConfig& config) {
    return fmt::format(
        "ready: http://{0}:{1}/v1 (any API key). Nothing is kept: calls, files and batches are gone when this process ends. To try it:\n"
        "  curl http://{0}:{1}/v1/{2}\n",
        host, port,
        config.generates ? R"(completions -H 'Content-Type: application/json' -d '{"model":"base","prompt":"Hello"}')" : "models");
}

// Empty: no batch runs.
std::string what_is_lost(const consumer::BatchTopics::Stats& stats) {
    std::int64_t open = 0;
    for (const auto& [state, count] : stats.batches) open += schema::is_final(state) ? 0 : count;
    if (open == 0) return "";
    return fmt::format(
        "lost: {}, with {} that have no result yet, and the results of all others. To keep results, cancel a batch and download its files "
        "before you stop.\n",
        show_count(open) + (open == 1 ? " batch" : " batches"), show_count(stats.lines_waiting, "line"));
}

// The settings of a gateway and a worker that serve this machine alone; those about other brokers and gateways are ignored.
Settings own_settings(Settings settings, const std::filesystem::path& files) {
    if (settings.job_bytes_max.count > partition_bytes_max) {
        throw UsageError(
            fmt::format("job_bytes_max is {}, and `lorry up` takes {} at most, as its broker holds little; `lorry serve` takes more",
                        show_bytes(settings.job_bytes_max.count), show_bytes(partition_bytes_max)));
    }
    settings.insecure_no_keys = true;
    settings.usage_ledger.clear();
    settings.gateways = 1;
    settings.group_protocol = "classic";
    settings.files = files.string();
    return settings;
}

consumer::EmbeddedBroker::Options broker_options(const schema::Topics& topics) {
    consumer::EmbeddedBroker::Options options{.topics = {}, .rebalance_delay = rebalance_delay};
    for (const schema::TopicSpec& spec : schema::topic_specs(topics, {.partitions = 1}))
        options.topics.push_back({.name = spec.name, .partitions = spec.name == topics.calls() ? calls_partitions : 1});
    return options;
}

consumer::KafkaConfig embedded_config(const consumer::EmbeddedBroker& broker, const char* fetch_wait, consumer::ReadingPace& pace) {
    return {
        .brokers = broker.address(), .passthrough = {{"fetch.wait.max.ms", fetch_wait}}, .deadline_later = broker_patience, .pace = &pace};
}

// Starts are not committed before they run: a job that kills this process ends with it.
consumer::KafkaMember::Options own_member(const Settings& settings) {
    consumer::KafkaMember::Options options = member_options(settings, topics_of(settings).prefix + "-up", member_name);
    options.careful_starts.jobs = 0;
    return options;
}

// What clients cancel; and, once the process is about to end, all that runs for batches, as these end with it.
class Cancels final : public consumer::CancelDirectory {
public:
    Cancels(const consumer::CancelDirectory& clients, std::string jobs_topic) : clients_(clients), jobs_topic_(std::move(jobs_topic)) {}
    void cancel_batches() { has_ended_ = true; }
    bool is_cancelled(const schema::Job& job) const override {
        return (has_ended_ && job.source.topic == jobs_topic_) || clients_.is_cancelled(job);
    }
    std::uint64_t version() const override { return clients_.version() + (has_ended_ ? 1 : 0); }

private:
    const consumer::CancelDirectory& clients_;
    const std::string jobs_topic_;
    std::atomic<bool> has_ended_ = false;
};

// Their calls would fail.
void log_left_out(const AdapterFolders& adapters) {
    constexpr std::size_t shown = 20;
    const auto left = adapters.left_out();
    for (std::size_t i = 0; i < std::min(left.size(), shown); ++i)
        log_warning("adapter_left_out", {{"adapter", schema::repair_utf8(left[i].name)}, {"why", schema::repair_utf8(left[i].why)}});
    if (left.size() > shown) log_warning("adapters_left_out", {{"more", static_cast<std::int64_t>(left.size() - shown)}});
}

class UpCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.add_option("--port", port_, "the port to listen on, at 127.0.0.1; 0: any free one")->type_name("PORT")->capture_default_str();
        configuration_.declare(app, {SettingScope::model, SettingScope::jobs, SettingScope::calls, SettingScope::log}, {"file_bytes_max"});
    }
    ExitCode run() override;

private:
    // What the gateway shows.
    struct Shown {
        const Settings& settings;
        const std::string& base_name;
        Metrics& metrics;
        const std::atomic<Phase>& phase;
        const MetricSources& sources;  // once the phase is `running`
    };
    std::unique_ptr<Gateway> open_gateway(const Shown& shown, Services& services) const;

    Configuration configuration_;
    std::uint16_t port_ = 8000;
};

std::unique_ptr<Gateway> UpCommand::open_gateway(const Shown& shown, Services& services) const {
    const auto sources = [shown] { return shown.phase == Phase::starting ? MetricSources{} : shown.sources; };
    return listen(
        {.host = host,
         .port = port_,
         .base_name = shown.base_name,
         .created = start_time(),
         .remembers = true,
         .limits = http_limits_of(shown.settings),
         .adapters = [&services] { return services.adapters().names(); },
         .health = [shown, sources] { return answer_of(health_of(shown.phase, Clock::now() - shown.metrics.last_poll(), sources())); },
         .metrics = [shown, sources] { return HttpAnswer{.type = Metrics::content_type, .body = shown.metrics.text(sources())}; },
         .stored = services.stored(shown.metrics),
         .on_request =
             [shown](const RequestReport& report) {
                 shown.metrics.on_request(report.url, report.status, report.took);
                 log_request(report);
             }},
        services.calls(), "--port");
}

ExitCode UpCommand::run() {
    SignalWatcher signals;
    const Settings given = configuration_.load();
    const engine::ModelConfig config = check_folders(given);
    const std::string base_name = base_name_of(given);
    const engine::ModelTexts texts(given.model);
    const AdapterFolders adapters(given.adapters, base_name, config, texts);
    start_event_log(given.log_level);
    log_left_out(adapters);

    const TemporaryFiles files;
    const Settings settings = own_settings(given, files.folder());
    const schema::Topics topics = topics_of(settings);
    const consumer::EmbeddedBroker broker(broker_options(topics));
    consumer::ReadingPace pace;
    const consumer::KafkaConfig kafka = embedded_config(broker, fetch_wait_ms, pace);
    const consumer::KafkaConfig kafka_of_calls = embedded_config(broker, fetch_wait_of_calls_ms, pace);
    Metrics metrics(program_version(), settings.max_batch);
    std::atomic<Phase> phase = Phase::starting;
    MetricSources sources;
    Services services({.settings = settings,
                       .kafka = kafka,
                       .base_name = base_name,
                       .deadline = Clock::now() + start_patience,
                       .kafka_of_calls = &kafka_of_calls,
                       .adapters = &adapters,
                       .partition_bytes_max = partition_bytes_max,
                       .is_alone = true});
    std::optional<consumer::KafkaMember> member;  // the gateway's pages ask it, so it ends later
    // Listens before the model is loaded: a port that is taken is found at once, and calls wait.
    const std::unique_ptr<Gateway> gateway =
        open_gateway({.settings = settings, .base_name = base_name, .metrics = metrics, .phase = phase, .sources = sources}, services);
    const ClosingServices closing(services);

    EngineSetup setup(settings, texts);
    std::cerr << setup.describe();
    consumer::ControlTopic control(kafka, {.topics = topics});
    member.emplace(kafka_of_calls, own_member(settings));
    control.wait_until_read(Clock::now() + start_patience);  // loading may have taken longer
    Cancels cancels(control, topics.jobs());
    consumer::Pipeline pipeline({.source = member->source(),
                                 .sink = member->sink(),
                                 .adapters = adapters,
                                 .cancels = cancels,
                                 .preparer = setup.preparer(),
                                 .engine = setup.engine(),
                                 .reply = setup.reply(),
                                 .observer = metrics},
                                worker_pipeline_options(settings, setup.engine(), member_name));
    sources = services.sources();
    sources.member = [&] { return member->stats(); };
    phase = Phase::running;
    std::cerr << advice(gateway->port(), config) << std::flush;
    Watch watch([&] { services.check(); }, [&] { pipeline.request_stop(); });
    const SignalWatcher::Armed armed(
        signals,
        [&] {
            phase = Phase::draining;
            services.refuse_more();
            cancels.cancel_batches();
            std::cerr << fmt::format("\nstopping: calls that run have {} to end (interrupt again to stop at once)\n{}",
                                     show_duration(settings.drain_timeout), what_is_lost(sources.batches()));
            pipeline.request_stop();
        },
        settings.drain_timeout + end_patience);
    pipeline.run();
    watch.end();
    services.drain(last_results_patience);
    return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> make_up_command() { return std::make_unique<UpCommand>(); }

}  // namespace lorry::ops
