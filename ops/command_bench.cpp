// `lorry bench`: what the engine does on this machine, without Kafka or files around it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/engine_setup.h"
#include "ops/machine.h"
#include "ops/queue_bench.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using schema::Json;

constexpr std::array ways = {QueueWay{.continuous = false, .kv_cache = false}, QueueWay{.continuous = true, .kv_cache = false},
                             QueueWay{.continuous = false, .kv_cache = true}, QueueWay{.continuous = true, .kv_cache = true}};

struct Throughput {
    std::int64_t requests = 200;
    std::int64_t input_tokens = 128;
    std::int64_t output_tokens = 64;
};

void check_context(const EngineSetup& setup, std::int64_t context, std::int64_t tokens) {
    if (tokens <= context) return;
    throw UsageError(fmt::format("{} holds {} tokens per sequence, {} were asked for: ask for less, or give more --kv-memory",
                                 setup.reply().base_name, context, tokens));
}

class BenchCommand final : public Command {
public:
    void declare(CLI::App& app) override;
    ExitCode run() override;

private:
    void bench_queue(EngineSetup& setup) const;
    void bench_throughput(EngineSetup& setup) const;

    Configuration queue_configuration_;
    Configuration throughput_configuration_;
    CLI::App* queue_ = nullptr;
    QueueShape shape_;
    std::int64_t repeat_ = 3;
    Throughput throughput_;
    bool json_ = false;
};

void BenchCommand::declare(CLI::App& app) {
    app.require_subcommand(1);
    queue_ = app.add_subcommand("queue", "a queue of short and long jobs: static against continuous batching, KV cache off and on");
    queue_->add_option("--jobs", shape_.jobs, "jobs in the queue")->check(CLI::PositiveNumber)->capture_default_str();
    queue_->add_option("--batch", shape_.batch, "jobs that run at a time")->check(CLI::PositiveNumber)->capture_default_str();
    queue_->add_option("--input-tokens", shape_.input_tokens, "of each prompt")->check(CLI::PositiveNumber)->capture_default_str();
    queue_->add_option("--output-tokens", shape_.output_tokens, "of a short job")->check(CLI::PositiveNumber)->capture_default_str();
    queue_->add_option("--output-tokens-long", shape_.output_tokens_long, "of a long job")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    queue_->add_option("--long-every", shape_.long_every, "one job in so many is long")->check(CLI::PositiveNumber)->capture_default_str();
    queue_->add_option("--repeat", repeat_, "the best of so many runs counts")->check(CLI::PositiveNumber)->capture_default_str();
    queue_->add_flag("--json", json_, "print JSON");
    queue_configuration_.declare(*queue_, {SettingScope::model});

    CLI::App* throughput = app.add_subcommand("throughput", "many equal requests at once");
    throughput->add_option("--requests", throughput_.requests, "how many")->check(CLI::PositiveNumber)->capture_default_str();
    throughput->add_option("--input-tokens", throughput_.input_tokens, "of each prompt")->check(CLI::PositiveNumber)->capture_default_str();
    throughput->add_option("--output-tokens", throughput_.output_tokens, "drawn by each")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    throughput->add_flag("--json", json_, "print JSON");
    throughput_configuration_.declare(*throughput, {SettingScope::model});
}

ExitCode BenchCommand::run() {
    const bool is_queue = queue_->parsed();
    const Settings settings = (is_queue ? queue_configuration_ : throughput_configuration_).load();
    EngineSetup setup(settings);
    std::cerr << setup.describe();
    if (is_queue) {
        bench_queue(setup);
    } else {
        bench_throughput(setup);
    }
    return ExitCode::done;
}

void BenchCommand::bench_queue(EngineSetup& setup) const {
    check_context(setup, setup.engine().context_max(), shape_.input_tokens + std::max(shape_.output_tokens, shape_.output_tokens_long));
    std::vector<std::vector<std::string>> rows = {{"batching", "KV cache", "seconds", "tokens/s", "steps", "p50 s", "p99 s"}};
    Json results = Json::Array();
    for (const QueueWay way : ways) {
        QueueResult best = run_queue(setup, shape_, way);
        for (std::int64_t i = 1; i < repeat_; ++i) {
            QueueResult again = run_queue(setup, shape_, way);
            if (again.seconds < best.seconds) best = std::move(again);
        }
        rows.push_back({way.continuous ? "continuous" : "static", way.kv_cache ? "on" : "off", fmt::format("{:.3f}", best.seconds),
                        fmt::format("{:.0f}", best.tokens_per_second()), show_count(static_cast<std::int64_t>(best.steps)),
                        fmt::format("{:.3f}", best.latency(0.5)), fmt::format("{:.3f}", best.latency(0.99))});
        results.push(Json::object({{"continuous", way.continuous},
                                   {"kv_cache", way.kv_cache},
                                   {"seconds", best.seconds},
                                   {"tokens_per_second", best.tokens_per_second()},
                                   {"steps", best.steps},
                                   {"latency_p50_seconds", best.latency(0.5)},
                                   {"latency_p99_seconds", best.latency(0.99)}}));
    }
    std::cout << (json_ ? results.dump() + "\n" : show_table(rows, 0b1111100));
}

void BenchCommand::bench_throughput(EngineSetup& setup) const {
    check_context(setup, setup.engine().context_max(), throughput_.input_tokens + throughput_.output_tokens);
    engine::Engine& engine = setup.engine();
    for (std::int64_t i = 0; i < throughput_.requests; ++i) {
        const auto number = static_cast<std::uint64_t>(i);
        engine::Request request{.id = number, .prompt = made_up_prompt(setup.model().config(), number, throughput_.input_tokens)};
        request.sampling.temperature = 0.0;
        request.max_tokens = throughput_.output_tokens;
        engine.submit(std::move(request));
    }
    engine::StepOutput output;
    const engine::Clock::time_point begin = engine::Clock::now();
    while (engine.step(output)) {
    }
    const double seconds = std::chrono::duration<double>(engine::Clock::now() - begin).count();
    const engine::EngineStats stats = engine.stats();
    const double drawn = static_cast<double>(stats.drawn_tokens);
    const double computed = static_cast<double>(stats.prompt_tokens);
    if (json_) {
        std::cout << Json::object({{"requests", throughput_.requests},
                                   {"seconds", seconds},
                                   {"prompt_tokens", stats.prompt_tokens},
                                   {"drawn_tokens", stats.drawn_tokens},
                                   {"drawn_tokens_per_second", drawn / seconds},
                                   {"tokens_per_second", (drawn + computed) / seconds},
                                   {"steps", stats.steps},
                                   {"preemptions", stats.preemptions},
                                   {"memory_peak_bytes", memory_peak()}})
                         .dump()
                  << '\n';
        return;
    }
    std::cout << show_table({{"requests", show_count(throughput_.requests)},
                             {"time", fmt::format("{:.2f} s", seconds)},
                             {"drawn", fmt::format("{:.0f} tokens/s", drawn / seconds)},
                             {"computed and drawn", fmt::format("{:.0f} tokens/s", (drawn + computed) / seconds)},
                             {"steps", fmt::format("{} ({:.2f} ms each)", show_count(static_cast<std::int64_t>(stats.steps)),
                                                   seconds * 1e3 / static_cast<double>(stats.steps))},
                             {"preemptions", show_count(static_cast<std::int64_t>(stats.preemptions))},
                             {"memory at most", show_bytes(memory_peak())}});
}

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace lorry::ops
