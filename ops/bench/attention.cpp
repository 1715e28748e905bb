// `lorry bench attention`: its flags and its table.
#include <CLI/CLI.hpp>
#include <chrono>

#include <fmt/format.h>

#include "ops/bench/attention_bench.h"
#include "ops/bench/limits.h"
#include "ops/bench/output.h"
#include "ops/bench/random_model.h"
#include "ops/bench/setup.h"
#include "ops/bench/workload.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/engine_setup.h"
#include "ops/flag_checks.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using schema::Json;

constexpr std::chrono::seconds shape_time{1};

struct Measured {
    AttentionShape shape;
    Work work;
    double seconds = 0.0;
};

std::string show_share(double rate, double limit) { return limit > 0.0 ? fmt::format("{:.0f} %", 100.0 * rate / limit) : "-"; }

std::string text_of(const std::vector<Measured>& all, const std::optional<MachineLimits>& limits) {
    const MachineLimits most = limits.value_or(MachineLimits{});
    std::vector<std::vector<std::string>> table = {
        {"sequences x tokens", "ms", "GB/s", "of the limit", most.attention.unit(), "of the limit"}};
    for (const auto& [shape, work, seconds] : all) {
        const double bytes = work.bytes / seconds;
        const double operations = work.operations / seconds;
        table.push_back({shape.name, fmt::format("{:.3f}", seconds * 1e3), fmt::format("{:.1f}", bytes * 1e-9),
                         show_share(bytes, most.bytes), fmt::format("{:.1f}", operations * 1e-9),
                         show_share(operations, most.attention.per_second)});
    }
    return show_table(table, 0b111110) + (limits ? most.seen + "\n" : "");
}

Json shapes_json(const std::vector<Measured>& all) {
    Json shapes = Json::Array();
    for (const auto& [shape, work, seconds] : all) {
        shapes.push(Json::object({{"name", shape.name},
                                  {"sequences", shape.sequences},
                                  {"tokens", shape.tokens},
                                  {"rows", shape.rows},
                                  {"seconds", seconds},
                                  {"bytes_per_second", work.bytes / seconds},
                                  {"operations_per_second", work.operations / seconds}}));
    }
    return shapes;
}

class BenchAttentionCommand final : public Command {
public:
    void declare(CLI::App& app) override;
    ExitCode run() override;

private:
    Configuration configuration_;
    std::string random_weights_;
    std::vector<std::int64_t> batches_ = {64, 256};
    std::vector<std::int64_t> prompts_ = {1024};
    std::int64_t context_ = 1024;
    BenchOutput output_;
};

void BenchAttentionCommand::declare(CLI::App& app) {
    app.add_option("--random-weights", random_weights_, "instead of --model: a model of this shape; needs no weights")
        ->check(CLI::IsMember(random_model_names()));
    const auto numbers = [&](const char* flag, std::vector<std::int64_t>& values, const char* help) {
        app.add_option(flag, values, help)->delimiter(',')->check(whole_number_from(1))->capture_default_str();
    };
    numbers("--batch", batches_, "batch sizes: sequences that each draw a token");
    app.add_option("--context", context_, "tokens of each of them")->check(whole_number_from(1))->capture_default_str();
    numbers("--prompt", prompts_, "prompt lengths; as many prompts run as --step-tokens holds");
    output_.declare(app);
    configuration_.declare(app, {SettingScope::model});
}

ExitCode BenchAttentionCommand::run() {
    const Settings settings = configuration_.load();
    if (!random_weights_.empty() && !settings.model.empty()) throw UsageError("give --model or --random-weights, not both");
    const engine::ModelConfig config = random_weights_.empty() ? check_folders(settings) : random_model_config(random_weights_);
    const auto layers = static_cast<std::size_t>(config.layers);
    std::vector<Measured> all;
    const kernels::DeviceInfo device = make_backend(settings)->info();
    const std::int64_t step_tokens = step_tokens_of(settings, device);
    for (AttentionShape& shape : attention_shapes(batches_, context_, prompts_, step_tokens)) {
        LayerAttention attention(config, make_backend(settings), shape);
        const double seconds = least_in_turn(Tries(3, shape_time), 1, [&](std::size_t) { return attention.run(0, layers); }).front();
        all.push_back({.shape = std::move(shape), .work = attention.work(), .seconds = seconds});
    }
    const kernels::CpuOptions options = cpu_options(settings);
    const std::optional<MachineLimits> limits = device.has_own_memory
                                                    ? gpu_limits(kernels::Quantization::none)
                                                    : limits_of(kernels::cpu::measure_rates(options.threads, options.isa), options.storage);
    Json json = circumstances_json({.device = device.name,
                                    .model = random_weights_.empty() ? base_name_of(settings) : random_weights_,
                                    .weights = storage_name(options.storage)});
    json.set("machine", limits ? limits->machine : Json());
    json.set("shapes", shapes_json(all));
    output_.print(text_of(all, limits), json, options.isa, gpu_of(device));
    return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> make_bench_attention_command() { return std::make_unique<BenchAttentionCommand>(); }

}  // namespace lorry::ops
