// `lorry bench loading`: its flags and its table.
#include <CLI/CLI.hpp>
#include <iostream>

#include <fmt/format.h>

#include "ops/bench/loading_bench.h"
#include "ops/bench/output.h"
#include "ops/bench/random_model.h"
#include "ops/bench/setup.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using schema::Json;

class BenchLoadingCommand final : public Command {
public:
    void declare(CLI::App& app) override;
    ExitCode run() override;

private:
    Configuration configuration_;
    MadeUp made_up_;
    LoadingShape shape_;
    BenchOutput output_;
};

void BenchLoadingCommand::declare(CLI::App& app) {
    add_count(app, "--requests", shape_.requests, "requests that fill the batch");
    add_count(app, "--input-tokens", shape_.input_tokens, "tokens of each prompt");
    add_count(app, "--quiet-steps", shape_.quiet_steps, "steps before each adapter, for comparison");
    made_up_.declare_weights(app);
    output_.declare(app);
    configuration_.declare(app, {SettingScope::model});
}

ExitCode BenchLoadingCommand::run() {
    Settings settings = configuration_.load();
    if (!made_up_.has_adapters(settings)) throw UsageError("there are no adapters: give --adapters or --random-adapters");
    settings.max_batch = shape_.requests;
    const TemporaryFolder made_up;
    made_up_.write(settings, made_up.path());
    LoadingShape shape = shape_;
    shape.adapters = all_adapters(settings, check_folders(settings));
    EngineSetup setup(settings, {.plain_decoding = true});
    std::cerr << setup.describe();
    check_context(setup, shape.input_tokens);
    const LoadingResult result = run_loading(setup, shape);
    const auto milliseconds = [](double seconds) { return fmt::format("{:.2f} ms", seconds * 1e3); };
    const std::string steps = show_count(result.loading_steps);
    const std::string text =
        show_table({{"a step", milliseconds(result.step_seconds)},
                    {"longest delay", milliseconds(result.quiet_delay) + " without loading"},
                    {"", milliseconds(result.loading_delay) + " in the " + steps + " steps while an adapter was loaded"},
                    {"an adapter", milliseconds(result.load_seconds) + " until it is loaded"}});
    Json json = circumstances_json(setup);
    json.set("adapter_count", std::ssize(shape.adapters));
    made_up_.describe_weights(json);
    json.set("requests", shape.requests);
    json.set("input_tokens", shape.input_tokens);
    json.set("quiet_steps", shape.quiet_steps);
    json.set("step_p50_seconds", result.step_seconds);
    json.set("quiet_delay_seconds", result.quiet_delay);
    json.set("loading_delay_seconds", result.loading_delay);
    json.set("loading_steps", result.loading_steps);
    json.set("load_seconds", result.load_seconds);
    output_.print(text, json, cpu_options(settings).isa, gpu_of(setup.device()));
    return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> make_bench_loading_command() { return std::make_unique<BenchLoadingCommand>(); }

}  // namespace lorry::ops
