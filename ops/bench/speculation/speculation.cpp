// `lorry bench speculation`: its flags and its table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "ops/bench/output.h"
#include "ops/bench/random_model.h"
#include "ops/bench/setup.h"
#include "ops/bench/speculation/speculation_bench.h"
#include "ops/bench/workload.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using schema::Json;

class BenchSpeculationCommand final : public Command {
public:
    void declare(CLI::App& app) override;
    ExitCode run() override;

private:
    Configuration configuration_;
    MadeUp made_up_;
    SpeculationShape shape_;
    BenchOutput output_;
};

void BenchSpeculationCommand::declare(CLI::App& app) {
    made_up_.declare(app);
    app.add_option("--batches", shape_.batches, "requests at a time, one run for each, such as 1,8,64")
        ->delimiter(',')
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    app.add_option("--copied", shape_.copied, "the share of an answer's tokens that are copied from the prompt; the others are random")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    add_count(app, "--span", shape_.span, "tokens that are copied together, on average");
    app.add_option("--chance-least", shape_.chance_least, "make guesses that are right with at least this chance (default: those that pay)")
        ->check(CLI::Range(0.0, 1.0));
    add_count(app, "--repeat", shape_.repeat, "rounds, in which runs with guesses and without take turns");
    output_.declare(app);
    configuration_.declare(app, {SettingScope::model});
}

ExitCode BenchSpeculationCommand::run() {
    Settings settings = configuration_.load();
    if (uses_gpu(settings)) throw UsageError("made-up answers need the CPU: add --device cpu");
    if (settings.speculation == "off") throw UsageError("--speculation off leaves nothing to compare: leave it out");
    settings.max_batch = std::max(settings.max_batch, *std::ranges::max_element(shape_.batches));
    const TemporaryFolder made_up;
    made_up_.write(settings, made_up.path());
    check_folders(settings);
    SpeculationShape shape = shape_;
    shape.input_tokens = made_up_.input_tokens();
    shape.output_tokens = made_up_.output_tokens().high;
    const std::int64_t sequence_tokens = shape.input_tokens.high + shape.output_tokens;
    Script script;
    EngineSetup setup(settings, {.watch = [&](std::unique_ptr<kernels::Backend> backend) { return script.watch(std::move(backend)); },
                                 .sequence_tokens = sequence_tokens});
    std::cerr << setup.describe();
    check_context(setup, sequence_tokens);

    std::vector<std::vector<std::string>> rows = {
        {"batch", "tokens/s", "without", "gain", "by processor time", "steps", "without", "right"}};
    Json results = circumstances_json(setup);
    made_up_.describe(results);
    results.set("copied", shape.copied);
    results.set("span", shape.span);
    results.set("repeats", shape.repeat);
    Json batches = Json::Array();
    for (const SpeculationResult& result : run_speculation(setup, shape, script)) {
        const auto rate = [&](const SpeculationResult::Way& way) {
            return static_cast<double>(result.tokens) / *std::ranges::min_element(way.seconds);
        };
        rows.push_back({fmt::format("{}", result.batch), fmt::format("{:.0f}", rate(result.guessed)),
                        fmt::format("{:.0f}", rate(result.plain)), fmt::format("{:.2f}", result.median_gain()),
                        fmt::format("{:.2f}", result.processor_gain()), show_count(result.guessed.steps), show_count(result.plain.steps),
                        fmt::format("{} of {}", result.accepted_tokens, result.drafted_tokens)});
        batches.push(Json::object({{"batch", result.batch},
                                   {"tokens_per_second", rate(result.guessed)},
                                   {"plain_tokens_per_second", rate(result.plain)},
                                   {"median_gain", result.median_gain()},
                                   {"processor_gain", result.processor_gain()},
                                   {"steps", result.guessed.steps},
                                   {"plain_steps", result.plain.steps},
                                   {"drafted_tokens", result.drafted_tokens},
                                   {"accepted_tokens", result.accepted_tokens}}));
    }
    results.set("batches", std::move(batches));
    const std::string text =
        show_table(rows, 0b11111111) + fmt::format("Made-up answers: {:.0f} % of their tokens are copied from the prompt, {} at a time.\n",
                                                   shape.copied * 100.0, shape.span);
    output_.print(text, results, cpu_options(settings).isa, gpu_of(setup.device()));
    return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> make_bench_speculation_command() { return std::make_unique<BenchSpeculationCommand>(); }

}  // namespace lorry::ops
