// `lorry bench throughput`: its flags and the order of its runs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "kernels/cpu/rates.h"
#include "ops/bench/limits.h"
#include "ops/bench/op_profile.h"
#include "ops/bench/output.h"
#include "ops/bench/random_model.h"
#include "ops/bench/setup.h"
#include "ops/bench/throughput_report.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/flag_checks.h"
#include "ops/machine.h"

namespace lorry::ops {
namespace {

using kernels::cpu::Rates;
using schema::Json;

class BenchThroughputCommand final : public Command {
public:
    void declare(CLI::App& app) override;
    ExitCode run() override;

private:
    // Refuses what can be refused before anything is written, loaded or measured. Throws UsageError.
    void check(const Settings& settings) const;
    ThroughputShape shape_of(const Settings& settings) const;
    struct Measured {
        ThroughputReport report;
        OpProfile profile;
        double last_seconds = 0.0;
        kernels::DeviceInfo device;
    };
    Measured measure(const Settings& settings, const ThroughputShape& shape) const;
    Json circumstances_of(const EngineSetup& setup, const ThroughputShape& shape) const;

    Configuration configuration_;
    MadeUp made_up_;
    std::optional<std::int64_t> requests_;
    std::int64_t shared_tokens_ = 0;
    schema::Sampling sampling_ = ThroughputShape{}.sampling;
    bool base_too_ = true;
    bool against_base_ = false;
    std::int64_t repeat_ = 3;
    std::vector<std::int64_t> thread_counts_;
    bool profile_ = false;
    BenchOutput output_;
};

// Sampling flags, with the ranges that jobs may use.
void declare_sampling(CLI::App& app, schema::Sampling& sampling) {
    constexpr double above_zero = 1e-6;
    app.add_option("--temperature", sampling.temperature, "of sampling (default: 0, the most likely token)")->check(CLI::Range(0.0, 2.0));
    app.add_option("--top-p", sampling.top_p, "draw from the most likely tokens with this total probability (default: 1)")
        ->check(CLI::Range(above_zero, 1.0));
    app.add_option("--repetition-penalty", sampling.repetition_penalty, "penalty on tokens already in prompt or output (default: 1)")
        ->check(CLI::Range(above_zero, 2.0));
    app.add_option("--frequency-penalty", sampling.frequency_penalty, "penalty per earlier occurrence in the output (default: 0)")
        ->check(CLI::Range(-2.0, 2.0));
}

void BenchThroughputCommand::declare(CLI::App& app) {
    app.add_option("--requests", requests_, "number of requests (default: four times --max-batch)")->check(whole_number_from(1));
    made_up_.declare(app);
    app.add_option("--shared-tokens", shared_tokens_, "tokens that all prompts begin with")
        ->check(whole_number_from(0))
        ->capture_default_str();
    declare_sampling(app, sampling_);
    app.add_flag("--base,!--no-base", base_too_, "with adapters: includes the base model")->capture_default_str();
    app.add_flag("--against-base", against_base_, "alternates with the same requests for the base alone: the cost of adapters");
    add_count(app, "--repeat", repeat_, "number of runs, of which the best counts");
    CLI::Option* const profile = app.add_flag("--profile", profile_, "shows where the time of the last run goes, op by op");
    app.add_option("--thread-counts", thread_counts_, "measures with each of these numbers of threads, such as 1,2,4,8: a curve")
        ->delimiter(',')
        ->check(CLI::Range(1, 1024))
        ->excludes(profile);
    output_.declare(app);
    configuration_.declare(app, {SettingScope::model});
}

void BenchThroughputCommand::check(const Settings& settings) const {
    if (!thread_counts_.empty() && uses_gpu(settings)) {
        throw UsageError("--thread-counts: a GPU does not compute with threads; add --device cpu");
    }
    if (profile_ && uses_gpu(settings)) throw UsageError("--profile: a GPU's ops run asynchronously and cannot be timed; add --device cpu");
    if (!made_up_.has_adapters(settings)) {
        if (against_base_) throw UsageError("--against-base compares adapters with the base: give --adapters or --random-adapters");
        if (!base_too_) throw UsageError("--no-base leaves nothing to run: give --adapters or --random-adapters");
    }
    const std::int64_t shortest = made_up_.input_tokens().low;
    if (shared_tokens_ > shortest)
        throw UsageError(fmt::format("--shared-tokens {}: a prompt may have only {} (--input-tokens)", shared_tokens_, shortest));
    made_up_.output_tokens();  // refuses an invalid range
}

ExitCode BenchThroughputCommand::run() {
    Settings settings = configuration_.load();
    check(settings);
    const TemporaryFolder made_up;
    made_up_.write(settings, made_up.path());
    check_folders(settings);
    const ThroughputShape shape = shape_of(settings);
    const auto print = [&](const std::string& text, const Json& json, const kernels::DeviceInfo& device) {
        output_.print(text, json, cpu_options(settings).isa, gpu_of(device));
        return ExitCode::done;
    };
    if (thread_counts_.empty()) {
        const Measured measured = measure(settings, shape);
        std::string text = throughput_text(measured.report);
        Json json = throughput_json(measured.report);
        if (profile_) {
            text += "\n" + measured.profile.show(measured.last_seconds, *measured.report.limits);
            const Json ops = measured.profile.json(*measured.report.limits);
            json.set("profile", Json::object({{"seconds", measured.last_seconds}, {"ops", ops}}));
        }
        return print(text, json, measured.device);
    }
    std::vector<CurvePoint> curve;
    kernels::DeviceInfo device;
    for (const std::int64_t threads : thread_counts_) {
        settings.threads = threads;
        Measured measured = measure(settings, shape);
        device = std::move(measured.device);
        curve.push_back({.threads = threads, .report = std::move(measured.report)});
    }
    return print(curve_text(curve), curve_json(curve), device);
}

BenchThroughputCommand::Measured BenchThroughputCommand::measure(const Settings& settings, const ThroughputShape& shape) const {
    // The machine's limits are measured in the same minutes as the runs, because others may be using it.
    const bool on_cpu = !uses_gpu(settings);
    const kernels::CpuOptions options = cpu_options(settings);
    std::optional<Rates> rates;
    if (on_cpu) rates = kernels::cpu::measure_rates(options.threads, options.isa);
    forget_memory_peak();

    Measured measured;
    const std::int64_t sequence_tokens = shape.input_tokens.high + shape.output_tokens.high;
    EngineSetup setup(
        settings, {.watch = profile_ ? measured.profile.watcher() : nullptr, .sequence_tokens = sequence_tokens, .plain_decoding = true});
    std::cerr << setup.describe();
    check_context(setup, sequence_tokens);
    measured.device = setup.device();
    ThroughputShape without = shape;
    without.models = {std::nullopt};
    ThroughputReport& report = measured.report;
    report.circumstances = circumstances_of(setup, shape);
    std::uint64_t seed = 0;
    for (std::int64_t i = 0; i < repeat_; ++i) {
        if (against_base_) {
            ThroughputResult base = run_throughput(setup, without, ++seed);
            if (!report.base || is_better(base, *report.base)) report.base = std::move(base);
        }
        measured.profile.clear();
        ThroughputResult again = run_throughput(setup, shape, ++seed);
        measured.last_seconds = again.seconds;
        if (i == 0 || is_better(again, report.result)) report.result = std::move(again);
    }
    report.memory_peak = memory_peak();
    if (on_cpu) {
        rates->take_better(kernels::cpu::measure_rates(options.threads, options.isa));
        report.limits = limits_of(*rates, options.storage);
    } else {
        report.limits = gpu_limits(options.storage.quantize);
    }
    return measured;
}

Json BenchThroughputCommand::circumstances_of(const EngineSetup& setup, const ThroughputShape& shape) const {
    Json json = circumstances_json(setup);
    json.set("requests", shape.requests);
    made_up_.describe(json);
    json.set("shared_tokens", shape.shared_tokens);
    json.set("sampling", Json::object({{"temperature", shape.sampling.temperature.value_or(1.0)},
                                       {"top_p", shape.sampling.top_p.value_or(1.0)},
                                       {"repetition_penalty", shape.sampling.repetition_penalty.value_or(1.0)},
                                       {"frequency_penalty", shape.sampling.frequency_penalty}}));
    const std::int64_t adapters = std::ranges::count_if(shape.models, [](const auto& model) { return model.has_value(); });
    json.set("adapter_count", adapters);
    json.set("base_too", adapters < std::ssize(shape.models));
    json.set("repeats", repeat_);
    return json;
}

ThroughputShape BenchThroughputCommand::shape_of(const Settings& settings) const {
    ThroughputShape shape{.requests = requests_.value_or(4 * settings.max_batch),
                          .input_tokens = made_up_.input_tokens(),
                          .output_tokens = made_up_.output_tokens(),
                          .shared_tokens = shared_tokens_,
                          .sampling = sampling_};
    if (!made_up_.has_adapters(settings)) return shape;
    shape.models.clear();
    for (engine::AdapterSource& adapter : all_adapters(settings, load_config(settings))) shape.models.emplace_back(std::move(adapter));
    if (base_too_) shape.models.emplace_back(std::nullopt);
    return shape;
}

}  // namespace

std::unique_ptr<Command> make_bench_throughput_command() { return std::make_unique<BenchThroughputCommand>(); }

}  // namespace lorry::ops
