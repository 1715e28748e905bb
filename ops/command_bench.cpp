// `lorry bench`: what the machine and the engine do, without Kafka or files around them.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <iostream>

#include <fmt/format.h>

#include "kernels/cpu/rates.h"
#include "ops/adapter_bench.h"
#include "ops/adapter_folders.h"
#include "ops/bench_requests.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/course_bench.h"
#include "ops/engine_setup.h"
#include "ops/loss_bench.h"
#include "ops/machine.h"
#include "ops/op_profile.h"
#include "ops/queue_bench.h"
#include "ops/random_model.h"
#include "ops/request_bench.h"
#include "ops/throughput_bench.h"
#include "ops/throughput_report.h"
#include "ops/tune_command.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using kernels::cpu::Rates;
using schema::Json;

void check_context(const EngineSetup& setup, std::int64_t context, std::int64_t tokens) {
    if (tokens <= context) return;
    throw UsageError(fmt::format("{} holds {} tokens per sequence, {} were asked for: ask for less, or give more --kv-memory",
                                 setup.reply().base_name, context, tokens));
}

// One row of a quantity for one thread and for all of them; a dash where the processor cannot do it.
std::vector<std::string> rate_row(const char* what, const char* unit, const std::optional<double>& one, const std::optional<double>& all) {
    const auto show = [&](const std::optional<double>& rate) { return rate ? show_giga(*rate, unit) : std::string("-"); };
    return {what, show(one), show(all)};
}

std::vector<engine::AdapterSource> all_adapters(const AdapterFolders& folders) {
    std::vector<engine::AdapterSource> adapters;
    for (const std::string& name : folders.names()) {
        const consumer::ModelName found = folders.resolve(name, {});
        if (found.kind != consumer::ModelName::Kind::adapter)
            throw UsageError(fmt::format("adapter {} cannot be used: {}", name, found.refusal));
        adapters.push_back({found.hash, found.folder});
    }
    return adapters;
}

void make_up_model(const std::string& shape, const std::filesystem::path& folder, Settings& settings) {
    if (!settings.model.empty()) throw UsageError("give --model or --random-weights, not both");
    settings.model = (folder / shape).string();
    write_random_model(shape, settings.model);
}

class BenchCommand final : public Command {
public:
    void declare(CLI::App& app) override;
    ExitCode run() override;

private:
    void declare_queue(CLI::App& app);
    void declare_made_up(CLI::App& part);
    void declare_throughput(CLI::App& app);
    void declare_adapters(CLI::App& app);
    void declare_loss(CLI::App& app);
    void declare_course(CLI::App& app);
    void declare_requests(CLI::App& app);
    void bench_machine() const;
    void bench_queue(EngineSetup& setup) const;
    void bench_throughput(Settings settings) const;
    void bench_adapters(Settings settings) const;
    void bench_loss(const Settings& settings) const;
    void bench_course(Settings settings) const;
    // Writes the model and the adapters that were asked for as random ones into `folder`, and names them in the settings.
    void make_up(Settings& settings, std::int64_t distinct, const std::filesystem::path& folder) const;
    void take_token_ranges(TokenRange& input, TokenRange& output) const;
    void bench_requests(const Settings& settings) const;
    ThroughputShape throughput_shape(EngineSetup& setup, const AdapterFolders& folders) const;

    TuneCommand tune_;
    Configuration machine_configuration_;
    Configuration queue_configuration_;
    Configuration throughput_configuration_;
    Configuration adapters_configuration_;
    Configuration loss_configuration_;
    Configuration course_configuration_;
    Configuration requests_configuration_;
    CLI::App* machine_ = nullptr;
    CLI::App* queue_ = nullptr;
    CLI::App* adapters_ = nullptr;
    CLI::App* loss_ = nullptr;
    CLI::App* course_ = nullptr;
    CLI::App* requests_ = nullptr;
    QueueShape queue_shape_;
    ThroughputShape throughput_shape_;
    AdapterShape adapter_shape_;
    std::int64_t adapters_cached_ = 100;
    std::string input_tokens_ = "128";
    std::string output_tokens_ = "64";
    std::string random_weights_;
    std::int64_t random_adapters_ = 0;
    bool base_too_ = true;
    std::vector<std::int64_t> ranks_ = {16};
    std::int64_t repeat_ = 3;
    std::string jobs_;
    std::int64_t jobs_max_ = 500;
    std::string out_ = "course";
    std::vector<std::string> only_;
    bool quick_ = false;
    bool against_base_ = false;
    bool profile_ = false;
    bool json_ = false;
};

void BenchCommand::declare(CLI::App& app) {
    app.require_subcommand(1);
    machine_ = app.add_subcommand("machine", "what memory and processor can do at most");
    machine_->add_flag("--json", json_, "print JSON");
    machine_configuration_.declare(*machine_, {SettingScope::model});
    tune_.declare(app);
    declare_queue(app);
    declare_throughput(app);
    declare_adapters(app);
    declare_loss(app);
    declare_course(app);
    declare_requests(app);
}

void BenchCommand::declare_queue(CLI::App& app) {
    queue_ = app.add_subcommand("queue", "a queue of short and long jobs: static against continuous batching, KV cache off and on");
    const auto number = [&](const char* flag, std::int64_t& value, const char* help) {
        queue_->add_option(flag, value, help)->check(CLI::PositiveNumber)->capture_default_str();
    };
    number("--jobs", queue_shape_.jobs, "jobs in the queue");
    number("--batch", queue_shape_.batch, "jobs that run at a time");
    number("--input-tokens", queue_shape_.input_tokens, "of each prompt");
    number("--output-tokens", queue_shape_.output_tokens, "of a short job");
    number("--output-tokens-long", queue_shape_.output_tokens_long, "of a long job");
    number("--long-every", queue_shape_.long_every, "one job in so many is long");
    number("--repeat", repeat_, "the best of so many runs counts");
    queue_->add_flag("--json", json_, "print JSON");
    queue_configuration_.declare(*queue_, {SettingScope::model});
}

// What requests, model and adapters are made up of.
void BenchCommand::declare_made_up(CLI::App& part) {
    part.add_option("--input-tokens", input_tokens_, "of each prompt: a number, or LOW:HIGH for any between")->capture_default_str();
    part.add_option("--output-tokens", output_tokens_, "drawn by each, in the same way")->capture_default_str();
    part.add_option("--random-weights", random_weights_, "instead of --model: a model of this shape that was never trained")
        ->check(CLI::IsMember(random_model_names()));
    part.add_option("--random-adapters", random_adapters_, "instead of --adapters: so many that were never trained")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    part.add_option("--ranks", ranks_, "of the random adapters, in turn")->delimiter(',')->check(CLI::Range(1, 512))->capture_default_str();
}

void BenchCommand::declare_throughput(CLI::App& app) {
    CLI::App* part = app.add_subcommand("throughput", "many requests at once, and the share of the machine that they use");
    part->add_option("--requests", throughput_shape_.requests, "how many")->check(CLI::PositiveNumber)->capture_default_str();
    declare_made_up(*part);
    part->add_option("--shared-tokens", throughput_shape_.shared_tokens, "that all prompts begin with")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    part->add_flag("--base,!--no-base", base_too_, "with adapters: the base model takes its turn too")->capture_default_str();
    part->add_flag("--against-base", against_base_, "in turn with the same requests all for the base: what adapters cost");
    part->add_option("--repeat", repeat_, "the best of so many runs counts")->check(CLI::PositiveNumber)->capture_default_str();
    part->add_flag("--profile", profile_, "of the last run: where the time goes, op by op");
    part->add_flag("--json", json_, "print JSON");
    throughput_configuration_.declare(*part, {SettingScope::model});
}

void BenchCommand::declare_adapters(CLI::App& app) {
    adapters_ = app.add_subcommand("adapters", "many more adapters than memory holds, some asked for far more often than others");
    const auto number = [&](const char* flag, std::int64_t& value, const char* help) {
        adapters_->add_option(flag, value, help)->check(CLI::PositiveNumber)->capture_default_str();
    };
    number("--requests", adapter_shape_.requests, "in the backlog");
    number("--window", adapter_shape_.in_flight, "of them that the engine knows at a time: from then on they wait");
    declare_made_up(*adapters_);
    number("--cached", adapters_cached_, "adapters that memory holds");
    adapters_->add_option("--exponent", adapter_shape_.exponent, "the K-th adapter is asked for 1 / K^EXPONENT as often as the first")
        ->check(CLI::Range(0.0, 4.0))
        ->capture_default_str();
    number("--repeat", repeat_, "the best of so many runs counts");
    adapters_->add_flag("--json", json_, "print JSON");
    adapters_configuration_.declare(*adapters_, {SettingScope::model});
}

void BenchCommand::declare_loss(CLI::App& app) {
    loss_ = app.add_subcommand("loss", "what narrower weights change in a model's answers");
    loss_->add_option("--jobs", jobs_, "FILE of jobs, as for `lorry run`")->required();
    loss_->add_option("--jobs-max", jobs_max_, "take the first so many")->check(CLI::PositiveNumber)->capture_default_str();
    loss_->add_flag("--json", json_, "print JSON");
    loss_configuration_.declare(*loss_, {SettingScope::model});
}

void BenchCommand::declare_course(CLI::App& app) {
    course_ = app.add_subcommand("course", "the experiments of a course on serving LoRA adapters, as tables and charts");
    std::vector<std::string> names;
    for (const CourseRow& row : course_table()) names.emplace_back(row.name);
    course_
        ->add_option("--random-weights", random_weights_,
                     "instead of --model: a model of this shape that was never trained (default: stories42m)")
        ->check(CLI::IsMember(random_model_names()));
    course_->add_option("--out", out_, "DIR for course.html, its charts as SVG files, and course.json")->capture_default_str();
    course_->add_option("--only", only_, "these experiments alone")->delimiter(',')->check(CLI::IsMember(names));
    course_->add_flag("--quick", quick_, "fewer and shorter runs: to see that it works");
    course_configuration_.declare(*course_, {SettingScope::model});
}

void BenchCommand::declare_requests(CLI::App& app) {
    requests_ = app.add_subcommand("requests", "the token ids that ops/bench-peers sends, a line of JSON at a time (ops/request_bench.h)");
    requests_configuration_.declare(*requests_, {SettingScope::model});
}

ExitCode BenchCommand::run() {
    if (machine_->parsed()) {
        bench_machine();
    } else if (tune_.parsed()) {
        tune_.run();
    } else if (queue_->parsed()) {
        EngineSetup setup(queue_configuration_.load());
        std::cerr << setup.describe();
        bench_queue(setup);
    } else if (adapters_->parsed()) {
        bench_adapters(adapters_configuration_.load());
    } else if (loss_->parsed()) {
        bench_loss(loss_configuration_.load());
    } else if (course_->parsed()) {
        bench_course(course_configuration_.load());
    } else if (requests_->parsed()) {
        bench_requests(requests_configuration_.load());
    } else {
        bench_throughput(throughput_configuration_.load());
    }
    return ExitCode::done;
}

void BenchCommand::bench_machine() const {
    const kernels::CpuOptions options = cpu_options(machine_configuration_.load());
    const Rates one = kernels::cpu::measure_rates(1, options.isa);
    const Rates all = kernels::cpu::measure_rates(options.threads, options.isa);
    if (json_) {
        std::cout << Json::array({rates_json(one), rates_json(all)}).dump() << '\n';
        return;
    }
    std::cout << show_table({{"", "1 thread", fmt::format("{} threads", all.threads)},
                             rate_row("copy", "GB/s", one.copy, all.copy),
                             rate_row("read", "GB/s", one.read, all.read),
                             rate_row("float32 multiply-adds", "GFLOP/s", one.float32, all.float32),
                             rate_row("bfloat16 dot", "GFLOP/s", one.bfloat16_dot, all.bfloat16_dot),
                             rate_row("int8 dot", "GOP/s", one.int8_dot, all.int8_dot)},
                            0b110);
}

void BenchCommand::bench_queue(EngineSetup& setup) const {
    check_context(setup, setup.engine().context_max(),
                  queue_shape_.input_tokens + std::max(queue_shape_.output_tokens, queue_shape_.output_tokens_long));
    std::vector<std::vector<std::string>> rows = {{"batching", "KV cache", "seconds", "tokens/s", "steps", "p50 s", "p99 s"}};
    Json results = Json::Array();
    for (const QueueWay way : queue_ways) {
        const QueueResult best = run_queue(setup, queue_shape_, way, repeat_);
        const double middle = quantile(best.latencies, 0.5);
        const double last = quantile(best.latencies, 0.99);
        rows.push_back({way.continuous ? "continuous" : "static", way.kv_cache ? "on" : "off", fmt::format("{:.3f}", best.seconds),
                        fmt::format("{:.0f}", best.tokens_per_second()), show_count(static_cast<std::int64_t>(best.steps)),
                        fmt::format("{:.3f}", middle), fmt::format("{:.3f}", last)});
        results.push(Json::object({{"continuous", way.continuous},
                                   {"kv_cache", way.kv_cache},
                                   {"seconds", best.seconds},
                                   {"tokens_per_second", best.tokens_per_second()},
                                   {"steps", best.steps},
                                   {"latency_p50_seconds", middle},
                                   {"latency_p99_seconds", last}}));
    }
    std::cout << (json_ ? results.dump() + "\n" : show_table(rows, 0b1111100));
}

ThroughputShape BenchCommand::throughput_shape(EngineSetup& setup, const AdapterFolders& folders) const {
    ThroughputShape shape = throughput_shape_;
    take_token_ranges(shape.input_tokens, shape.output_tokens);
    shape.models.clear();
    for (engine::AdapterSource& adapter : all_adapters(folders)) shape.models.emplace_back(std::move(adapter));
    if (base_too_ || shape.models.empty()) shape.models.emplace_back(std::nullopt);
    check_context(setup, setup.engine().context_max(), shape.input_tokens.high + shape.output_tokens.high);
    return shape;
}

void BenchCommand::take_token_ranges(TokenRange& input, TokenRange& output) const {
    const auto parsed_input = parse_token_range(input_tokens_);
    const auto parsed_output = parse_token_range(output_tokens_);
    if (!parsed_input) throw UsageError(fmt::format("--input-tokens {}: a number from 1, or LOW:HIGH", input_tokens_));
    if (!parsed_output) throw UsageError(fmt::format("--output-tokens {}: a number from 1, or LOW:HIGH", output_tokens_));
    input = *parsed_input;
    output = *parsed_output;
}

void BenchCommand::make_up(Settings& settings, std::int64_t distinct, const std::filesystem::path& folder) const {
    if (!random_weights_.empty()) make_up_model(random_weights_, folder, settings);
    if (random_adapters_ > 0) {
        if (!settings.adapters.empty()) throw UsageError("give --adapters or --random-adapters, not both");
        if (settings.model.empty()) throw UsageError("--random-adapters needs --model or --random-weights");
        settings.adapters = (folder / "adapters").string();
        write_random_adapters(settings.model, random_adapters_, distinct, ranks_, settings.adapters);
    }
}

void BenchCommand::bench_throughput(Settings settings) const {
    const TemporaryFolder made_up;
    const std::int64_t ranks = std::ssize(ranks_);
    make_up(settings, (random_adapters_ + ranks - 1) / ranks * ranks, made_up.path());
    OpProfile profile;
    EngineSetup setup(settings, profile_ ? &profile : nullptr);
    std::cerr << setup.describe();
    const AdapterFolders folders(settings.adapters, base_name_of(settings), setup.model().config());
    const ThroughputShape shape = throughput_shape(setup, folders);
    const kernels::CpuOptions options = cpu_options(settings);

    if (profile_ && setup.device().has_own_memory)
        throw UsageError("--profile: a GPU's ops are not done when they return; add --device cpu");
    // The machine's limits from the same minutes as the runs: others may be using it. Those of a GPU are not measured.
    const bool on_cpu = !setup.device().has_own_memory;
    std::optional<Rates> rates;
    if (on_cpu) rates = kernels::cpu::measure_rates(options.threads, options.isa);
    if (against_base_ && folders.names().empty()) throw UsageError("--against-base compares adapters with the base: give --adapters");
    ThroughputShape without = shape;
    without.models = {std::nullopt};
    ThroughputReport report{.cpu = cpu_model(),
                            .device = setup.device().name,
                            .model = setup.reply().base_name,
                            .weights = weights_name(options),
                            .shape = shape};
    double last_seconds = 0.0;
    std::uint64_t seed = 0;
    for (std::int64_t i = 0; i < repeat_; ++i) {
        if (against_base_) {
            const double seconds = run_throughput(setup, without, ++seed).seconds;
            report.base_seconds = std::min(report.base_seconds.value_or(seconds), seconds);
        }
        profile.clear();
        ThroughputResult again = run_throughput(setup, shape, ++seed);
        last_seconds = again.seconds;
        if (i == 0 || again.seconds < report.result.seconds) report.result = std::move(again);
    }
    if (on_cpu) {
        rates->take_better(kernels::cpu::measure_rates(options.threads, options.isa));
        report.limits = limits_of(*rates, options);
    }
    report.memory_peak = memory_peak();
    std::cout << (json_ ? throughput_json(report).dump() + "\n" : throughput_text(report));
    if (profile_) std::cerr << profile.show(last_seconds);
}

void BenchCommand::bench_adapters(Settings settings) const {
    // Thousands of files of their own would be written for longer than the benchmark takes: weights are the content of few.
    const TemporaryFolder made_up;
    make_up(settings, 4 * std::ssize(ranks_), made_up.path());
    EngineSetup setup(settings);
    std::cerr << setup.describe();
    const AdapterFolders folders(settings.adapters, base_name_of(settings), setup.model().config());
    AdapterShape shape = adapter_shape_;
    take_token_ranges(shape.input_tokens, shape.output_tokens);
    check_context(setup, setup.engine().context_max(), shape.input_tokens.high + shape.output_tokens.high);
    shape.adapters = all_adapters(folders);
    if (shape.adapters.empty()) throw UsageError("there are no adapters: give --adapters or --random-adapters");
    std::array adapter_ways = {AdapterWay{.name = "all in memory"}, AdapterWay{.name = "cached"},
                               AdapterWay{.name = "cached, by arrival", .group = false}};
    // In turn, so that other users of the machine slow all of them down.
    std::array<AdapterResult, adapter_ways.size()> best;
    for (std::int64_t i = 0; i < repeat_; ++i) {
        for (std::size_t way = 0; way < adapter_ways.size(); ++way) {
            AdapterResult again = run_adapters(setup, shape, adapter_ways[way], static_cast<std::uint64_t>(i) + 1);
            // What all of them take is known when they have been loaded.
            const std::size_t cached = again.adapter_bytes * static_cast<std::size_t>(adapters_cached_) / shape.adapters.size();
            if (!adapter_ways[way].adapter_bytes) adapter_ways[1].adapter_bytes = adapter_ways[2].adapter_bytes = cached;
            if (i == 0 || again.seconds < best[way].seconds) best[way] = std::move(again);
        }
    }
    std::vector<std::vector<std::string>> rows = {
        {"adapters", "memory", "tokens/s", "of all in memory", "loads", "adapters a step", "wait p50 s", "p99 s", "longest s", "by p50"}};
    Json results = Json::Array();
    for (std::size_t way = 0; way < adapter_ways.size(); ++way) {
        const AdapterResult& result = best[way];
        const double middle = quantile(result.waits, 0.5);
        const double longest = result.waits.back();
        const double share = best.front().seconds / result.seconds;
        rows.push_back({adapter_ways[way].name, show_bytes(result.adapter_bytes), fmt::format("{:.0f}", result.tokens_per_second()),
                        fmt::format("{:.2f}", share), show_count(static_cast<std::int64_t>(result.loads)),
                        fmt::format("{:.1f}", result.adapters_per_step), fmt::format("{:.2f}", middle),
                        fmt::format("{:.2f}", quantile(result.waits, 0.99)), fmt::format("{:.2f}", longest),
                        fmt::format("{:.1f}", longest / middle)});
        results.push(Json::object({{"way", adapter_ways[way].name},
                                   {"adapters", static_cast<std::int64_t>(shape.adapters.size())},
                                   {"adapters_asked_for", static_cast<std::int64_t>(result.waits.size())},
                                   {"adapter_bytes", static_cast<std::int64_t>(result.adapter_bytes)},
                                   {"grouped", adapter_ways[way].group},
                                   {"seconds", result.seconds},
                                   {"tokens_per_second", result.tokens_per_second()},
                                   {"throughput_of_all_in_memory", share},
                                   {"steps", result.steps},
                                   {"loads", result.loads},
                                   {"adapters_per_step", result.adapters_per_step},
                                   {"wait_p50_seconds", middle},
                                   {"wait_p99_seconds", quantile(result.waits, 0.99)},
                                   {"wait_longest_seconds", longest}}));
    }
    std::cout << (json_ ? results.dump() + "\n" : show_table(rows, 0b1111111110));
}

void BenchCommand::bench_loss(const Settings& settings) const {
    std::vector<std::vector<std::string>> table = {{"weights", "perplexity", "of tokens", "answers as float32"}};
    Json results = Json::Array();
    for (const LossRow& row : measure_loss(settings, jobs_, jobs_max_)) {
        table.push_back({row.weights, fmt::format("{:.4f}", row.perplexity), show_count(row.tokens),
                         fmt::format("{} of {}", row.answers_same, row.answers)});
        results.push(Json::object({{"weights", row.weights},
                                   {"perplexity", row.perplexity},
                                   {"tokens", row.tokens},
                                   {"answers", row.answers},
                                   {"answers_same", row.answers_same}}));
    }
    std::cout << (json_ ? results.dump() + "\n" : show_table(table, 0b1110));
}

void BenchCommand::bench_requests(const Settings& settings) const {
    const engine::Clock::time_point begin = engine::Clock::now();
    EngineSetup setup(settings);
    const double load_seconds = std::chrono::duration<double>(engine::Clock::now() - begin).count();
    const AdapterFolders folders(settings.adapters, base_name_of(settings), setup.model().config());
    answer_request_lines(setup, folders, load_seconds, std::cin, std::cout);
}

void BenchCommand::bench_course(Settings settings) const {
    if (settings.device == "cuda") throw UsageError("--device cuda: the course compares ways of the CPU");
    settings.device = "cpu";
    settings.prefix_cache = false;
    settings.max_batch = std::max<std::int64_t>(settings.max_batch, 64);
    const std::filesystem::path out = out_;
    std::filesystem::create_directories(out);
    const TemporaryFolder scratch;
    if (!random_weights_.empty() || settings.model.empty())
        make_up_model(random_weights_.empty() ? "stories42m" : random_weights_, scratch.path(), settings);
    EngineSetup setup(settings);
    check_context(setup, setup.engine().context_max(), course_context);
    const std::string weights = weights_name(cpu_options(settings));
    const std::string machine = fmt::format("{}, {}; {}, {} weights", cpu_model(), setup.device().name, setup.reply().base_name, weights);
    std::cerr << machine << '\n';

    Course course{.settings = settings, .setup = setup, .scratch = scratch.path(), .quick = quick_};
    std::vector<Experiment> experiments;
    Json results = Json::Array();
    for (const CourseRow& row : course_table()) {
        if (!only_.empty() && std::ranges::find(only_, row.name) == only_.end()) continue;
        std::cerr << row.name << " …\n";
        const Experiment& experiment = experiments.emplace_back(run_experiment(row, course));
        std::cout << (experiments.size() > 1 ? "\n" : "") << show_experiment(experiment) << std::flush;
        results.push(experiment_json(experiment));
        for (const Chart& chart : experiment.charts) write_text(out / (chart.name + ".svg"), svg_of(chart));
    }
    write_text(out / "course.html", experiments_page(experiments, machine));
    const Json all = Json::object({{"cpu", cpu_model()},
                                   {"device", setup.device().name},
                                   {"model", setup.reply().base_name},
                                   {"weights", weights},
                                   {"quick", quick_},
                                   {"experiments", results}});
    write_text(out / "course.json", all.dump() + "\n");
    std::cerr << "charts: " << (out / "course.html").string() << '\n';
}

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace lorry::ops
