// `lorry up`: the OpenAI API on this machine, for trying out: a gateway, a worker's pipeline and a queue between them in one process,
// without Kafka. Called by the command table.
#include <CLI/CLI.hpp>
#include <atomic>
#include <iostream>
#include <memory>

#include <fmt/format.h>

#include "consumer/memory/memory_calls.h"
#include "consumer/pipeline.h"
#include "ops/adapter_folders.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/engine_setup.h"
#include "ops/event_log.h"
#include "ops/gateway/gateway.h"
#include "ops/metrics.h"
#include "ops/pipeline_setup.h"
#include "ops/serve/gateway_setup.h"
#include "ops/signals.h"
#include "ops/units.h"
#include "ops/worker/health.h"

namespace lorry::ops {
namespace {

using consumer::Clock;

constexpr const char* host = "127.0.0.1";

HttpAnswer answer_of(const Health& health) { return {.status = health.ok ? 200U : 503U, .body = health.state + "\n"}; }

std::string advice(int port, const engine::ModelConfig& config) {
    return fmt::format(
        "ready: http://{0}:{1}/v1 (any API key). Nothing is kept: what runs when this process ends is lost. To try it:\n"
        "  curl http://{0}:{1}/v1/{2}\n",
        host, port,
        config.generates ? R"(completions -H 'Content-Type: application/json' -d '{"model":"base","prompt":"Hello"}')" : "models");
}

class UpCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.add_option("--port", port_, "the port to listen on, at 127.0.0.1; 0: any free one")->type_name("PORT")->capture_default_str();
        configuration_.declare(app, {SettingScope::model, SettingScope::jobs, SettingScope::calls, SettingScope::log});
    }
    ExitCode run() override;

private:
    Configuration configuration_;
    std::uint16_t port_ = 8000;
};

ExitCode UpCommand::run() {
    SignalWatcher signals;
    const Settings settings = configuration_.load();
    const engine::ModelConfig config = check_folders(settings);
    const std::string base_name = base_name_of(settings);
    const engine::ModelTexts texts(settings.model);
    const AdapterFolders adapters(settings.adapters, base_name, config, texts);
    start_event_log(settings.log_level);

    // Listens before the model is loaded: a port that is taken is found at once, and calls wait.
    consumer::MemoryCalls calls({.calls = static_cast<std::size_t>(settings.calls_max)});
    Metrics metrics(program_version(), settings.max_batch);
    std::atomic<Phase> phase = Phase::starting;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::unique_ptr<Gateway> gateway =
        listen({.host = host,
                .port = port_,
                .base_name = base_name,
                .created = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
                .limits = http_limits_of(settings),
                .adapters = [&] { return adapters.names(); },
                .health = [&] { return answer_of(health_of(phase, Clock::now() - metrics.last_poll(), {})); },
                .metrics = [&] { return HttpAnswer{.type = Metrics::content_type, .body = metrics.text({})}; },
                .on_request =
                    [&](const RequestReport& report) {
                        metrics.on_request(report.url, report.status, report.took);
                        log_request(report);
                    }},
               calls, "--port");

    EngineSetup setup(settings, texts);
    std::cerr << setup.describe();
    consumer::Pipeline pipeline({.source = calls,
                                 .sink = calls,
                                 .adapters = adapters,
                                 .cancels = calls,
                                 .preparer = setup.preparer(),
                                 .engine = setup.engine(),
                                 .reply = setup.reply(),
                                 .observer = metrics},
                                pipeline_options(settings, setup.engine(), "up"));
    phase = Phase::running;
    std::cerr << advice(gateway->port(), config) << std::flush;
    const SignalWatcher::Armed armed(signals, [&] {
        phase = Phase::draining;
        calls.refuse_more();
        std::cerr << fmt::format("\nstopping: calls that run have {} to end (interrupt again to stop at once)\n",
                                 show_duration(settings.drain_timeout));
        pipeline.request_stop();
    });
    pipeline.run();
    return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> make_up_command() { return std::make_unique<UpCommand>(); }

}  // namespace lorry::ops
