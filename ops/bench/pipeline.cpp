// `lorry bench pipeline`: its flags and its table.
#include <CLI/CLI.hpp>
#include <iostream>

#include <fmt/format.h>

#include "ops/adapter_folders.h"
#include "ops/bench/output.h"
#include "ops/bench/pipeline_bench.h"
#include "ops/bench/setup.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/paths.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using schema::Json;

class BenchPipelineCommand final : public Command {
public:
    void declare(CLI::App& app) override;
    ExitCode run() override;

private:
    Configuration configuration_;
    std::string jobs_;
    std::int64_t repeat_ = 3;
    BenchOutput output_;
};

void BenchPipelineCommand::declare(CLI::App& app) {
    app.add_option("jobs", jobs_, "OpenAI Batch lines (JSONL), as for `lorry run`")->required()->type_name("IN");
    add_count(app, "--repeat", repeat_, "number of runs, of which the best counts");
    output_.declare(app);
    configuration_.declare(app, {SettingScope::model, SettingScope::jobs});
}

ExitCode BenchPipelineCommand::run() {
    const Settings settings = configuration_.load();
    require_file(jobs_);
    const engine::ModelConfig config = check_folders(settings);
    const engine::ModelTexts texts(settings.model);
    const AdapterFolders adapters(settings.adapters, base_name_of(settings), config, texts);
    EngineSetup setup(settings, texts, {.watch = only_sample, .plain_decoding = true});
    std::cerr << setup.describe();
    const PipelineCost cost = run_pipeline(setup, adapters, settings, jobs_, repeat_);

    const auto tokens = static_cast<double>(cost.tokens);
    std::vector<std::vector<std::string>> rows = {{"thread", "µs per token", "µs per job", "tokens/s at most"}};
    Json threads = Json::Array();
    for (const auto& [name, seconds] : {std::pair("intake", cost.intake_seconds), std::pair("engine", cost.engine_seconds),
                                        std::pair("publisher", cost.publishing_seconds)}) {
        const double per_job = seconds / static_cast<double>(cost.jobs);
        rows.push_back({name, fmt::format("{:.2f}", seconds / tokens * 1e6), fmt::format("{:.1f}", per_job * 1e6),
                        show_count(static_cast<std::int64_t>(tokens / seconds))});
        threads.push(Json::object({{"thread", name}, {"seconds_per_token", seconds / tokens}, {"seconds_per_job", per_job}}));
    }
    std::string text = show_table(rows, 0b1110) + fmt::format("{}, {}, {}; processor time without the model, of the best of {}\n",
                                                              show_count(cost.jobs, "job"), show_count(cost.tokens, "token"),
                                                              show_count(cost.steps, "step"), show_count(repeat_, "run"));
    if (cost.failed > 0) text += fmt::format("{} failed; the first: {}\n", show_count(cost.failed, "job"), cost.first_error);
    Json json = circumstances_json(setup);
    json.set("jobs", cost.jobs);
    json.set("failed", cost.failed);
    json.set("tokens", cost.tokens);
    json.set("steps", cost.steps);
    json.set("seconds", cost.seconds);
    json.set("repeats", repeat_);
    json.set("threads", std::move(threads));
    output_.print(text, json, cpu_options(settings).isa, gpu_of(setup.device()));
    return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> make_bench_pipeline_command() { return std::make_unique<BenchPipelineCommand>(); }

}  // namespace lorry::ops
