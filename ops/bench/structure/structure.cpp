// `lorry bench structure`: its flags and its table.
#include <CLI/CLI.hpp>
#include <iostream>

#include <fmt/format.h>

#include "engine/files.h"
#include "ops/bench/output.h"
#include "ops/bench/setup.h"
#include "ops/bench/structure/structure_bench.h"
#include "ops/bench/workload.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using schema::Json;

// Ten fields, of the kinds that extraction asks for.
constexpr const char* ten_fields =
    R"({"type":"object","properties":{"customer_name":{"type":"string","maxLength":24},"product":{"type":"string","maxLength":16},)"
    R"("category":{"enum":["billing","delivery","quality","returns","other"]},"sentiment":{"enum":["positive","neutral","negative"]},)"
    R"("priority":{"type":"integer","minimum":1,"maximum":5},"amount":{"type":"number","minimum":0,"maximum":10000},)"
    R"("is_repeated":{"type":"boolean"},"order_date":{"type":"string","format":"date"},)"
    R"("keywords":{"type":"array","items":{"type":"string","maxLength":12},"minItems":1,"maxItems":3},"needs_reply":{"type":"boolean"}},)"
    R"("required":["customer_name","product","category","sentiment","priority","amount","is_repeated","order_date","keywords",)"
    R"("needs_reply"],"additionalProperties":false})";

class BenchStructureCommand final : public Command {
public:
    void declare(CLI::App& app) override;
    ExitCode run() override;

private:
    Configuration configuration_;
    MadeUp made_up_;
    StructureShape shape_;
    std::string schema_file_;
    std::string input_tokens_ = "128";
    BenchOutput output_;
};

void BenchStructureCommand::declare(CLI::App& app) {
    app.add_option("--schema", schema_file_, "file with the JSON schema of the answers; without it, one of ten fields");
    made_up_.declare_model(app);
    add_count(app, "--requests", shape_.requests, "requests, which all start at once");
    app.add_option("--input-tokens", input_tokens_, "tokens of each prompt: a number or a range such as 64:256")->capture_default_str();
    add_count(app, "--output-tokens-max", shape_.output_tokens_max, "the most tokens of an answer");
    add_count(app, "--compiles", shape_.compiles, "different schemas to compile");
    add_count(app, "--repeat", shape_.repeat, "runs of each way, of which the fastest counts");
    output_.declare(app);
    configuration_.declare(app, {SettingScope::model});
}

ExitCode BenchStructureCommand::run() {
    Settings settings = configuration_.load();
    StructureShape shape = shape_;
    const auto input_tokens = parse_token_range(input_tokens_);
    if (!input_tokens) throw UsageError(fmt::format("--input-tokens {}: give a number or a range such as 64:256", input_tokens_));
    shape.input_tokens = *input_tokens;
    shape.schema = ten_fields;
    if (!schema_file_.empty()) {
        auto text = engine::read_text(schema_file_);
        if (!text) throw UsageError("--schema: " + text.error());
        shape.schema = *std::move(text);
    }
    const TemporaryFolder scratch;
    made_up_.write(settings, scratch.path());
    const std::int64_t sequence_tokens = shape.input_tokens.high + shape.output_tokens_max;
    EngineSetup setup(settings, {.sequence_tokens = sequence_tokens, .plain_decoding = true});
    std::cerr << setup.describe();
    check_context(setup, sequence_tokens);
    const StructureResult result = run_structure(setup, shape);

    std::vector<std::vector<std::string>> rows = {{"answers", "tokens/s", "of free text", "by processor time", "steps"}};
    Json results = circumstances_json(setup);
    results.set("requests", shape.requests);
    results.set("complete", result.complete);
    results.set("tokens", result.tokens);
    results.set("forced_tokens", result.forced_tokens);
    results.set("repeats", shape.repeat);
    Json ways = Json::Array();
    for (const StructureResult::Way& way : result.ways) {
        const double rate = static_cast<double>(result.tokens) / way.seconds;
        const double share = result.ways.front().seconds / way.seconds;
        const double processor_share = result.ways.front().processor_seconds / way.processor_seconds;
        rows.push_back({way.name, fmt::format("{:.0f}", rate), fmt::format("{:.2f}", share), fmt::format("{:.2f}", processor_share),
                        show_count(way.steps)});
        ways.push(Json::object({{"way", way.name},
                                {"seconds", way.seconds},
                                {"tokens_per_second", rate},
                                {"throughput_of_free_text", share},
                                {"by_processor_time", processor_share},
                                {"steps", way.steps}}));
    }
    results.set("ways", std::move(ways));
    const double middle = quantile(result.compile_seconds, 0.5);
    const double slow = quantile(result.compile_seconds, 0.99);
    results.set("first_compile_seconds", result.first_compile_seconds);
    results.set("compile_p50_seconds", middle);
    results.set("compile_p99_seconds", slow);
    const std::string text = show_table(rows, 0b11110) +
                             fmt::format("{} of {} answers are complete; {} of their {} tokens were forced.\n", result.complete,
                                         shape.requests, result.forced_tokens, result.tokens) +
                             fmt::format("A schema compiles in {:.1f} ms, p99 {:.1f} ms; the first took {:.0f} ms.\n", middle * 1e3,
                                         slow * 1e3, result.first_compile_seconds * 1e3);
    output_.print(text, results, cpu_options(settings).isa, gpu_of(setup.device()));
    return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> make_bench_structure_command() { return std::make_unique<BenchStructureCommand>(); }

}  // namespace lorry::ops
