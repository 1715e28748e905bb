// `lorry bench queue`: its flags and its table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "ops/bench/output.h"
#include "ops/bench/queue_bench.h"
#include "ops/bench/setup.h"
#include "ops/bench/workload.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using schema::Json;

class BenchQueueCommand final : public Command {
public:
    void declare(CLI::App& app) override;
    ExitCode run() override;

private:
    Configuration configuration_;
    QueueShape shape_;
    std::int64_t repeat_ = 3;
    BenchOutput output_;
};

void BenchQueueCommand::declare(CLI::App& app) {
    add_count(app, "--jobs", shape_.jobs, "jobs in the queue");
    add_count(app, "--batch", shape_.batch, "jobs that run at a time");
    add_count(app, "--input-tokens", shape_.input_tokens, "of each prompt");
    add_count(app, "--output-tokens", shape_.output_tokens, "of a short job");
    add_count(app, "--output-tokens-long", shape_.output_tokens_long, "of a long job");
    add_count(app, "--long-every", shape_.long_every, "every N-th job is long");
    add_count(app, "--repeat", repeat_, "number of runs, of which the best counts");
    output_.declare(app);
    configuration_.declare(app, {SettingScope::model});
}

ExitCode BenchQueueCommand::run() {
    Settings settings = configuration_.load();
    settings.max_batch = shape_.batch;
    settings.prefix_cache = false;
    EngineSetup setup(settings, {.plain_decoding = true});
    std::cerr << setup.describe();
    check_context(setup, shape_.input_tokens + std::max(shape_.output_tokens, shape_.output_tokens_long));
    std::vector<std::vector<std::string>> rows = {{"batching", "KV cache", "seconds", "tokens/s", "steps", "p50 s", "p99 s"}};
    Json results = circumstances_json(setup);
    results.set("jobs", shape_.jobs);
    results.set("input_tokens", shape_.input_tokens);
    results.set("output_tokens", shape_.output_tokens);
    results.set("output_tokens_long", shape_.output_tokens_long);
    results.set("long_every", shape_.long_every);
    results.set("repeats", repeat_);
    Json ways = Json::Array();
    for (const QueueWay way : queue_ways) {
        const QueueResult best = run_queue(setup, shape_, way, repeat_);
        const double middle = quantile(best.latencies, 0.5);
        const double last = quantile(best.latencies, 0.99);
        rows.push_back({way.continuous ? "continuous" : "static", way.kv_cache ? "on" : "off", fmt::format("{:.3f}", best.seconds),
                        fmt::format("{:.0f}", best.tokens_per_second()), show_count(best.steps), fmt::format("{:.3f}", middle),
                        fmt::format("{:.3f}", last)});
        ways.push(Json::object({{"continuous", way.continuous},
                                {"kv_cache", way.kv_cache},
                                {"seconds", best.seconds},
                                {"tokens_per_second", best.tokens_per_second()},
                                {"steps", best.steps},
                                {"latency_p50_seconds", middle},
                                {"latency_p99_seconds", last}}));
    }
    results.set("ways", std::move(ways));
    output_.print(show_table(rows, 0b1111100), results, cpu_options(settings).isa, gpu_of(setup.device()));
    return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> make_bench_queue_command() { return std::make_unique<BenchQueueCommand>(); }

}  // namespace lorry::ops
