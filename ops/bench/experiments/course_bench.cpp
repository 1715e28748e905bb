// One function per experiment: it measures rows, states the finding, and names the columns that the charts show.
#include "ops/bench/experiments/course_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "engine/model/adapter.h"
#include "ops/bench/experiments/lora_ways.h"
#include "ops/bench/experiments/quantize.h"
#include "ops/bench/queue_bench.h"
#include "ops/bench/random_model.h"
#include "ops/bench/throughput_bench.h"
#include "ops/bench/workload.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

constexpr double kilo = 1e3;
constexpr double mebi = 1.0 / (1 << 20);
constexpr double percent = 100.0;

std::int64_t batch_max(const Course& course) { return course.quick ? 8 : 64; }

double tokens_per_second(const ThroughputResult& result) { return static_cast<double>(result.drawn_tokens) / result.seconds; }
double middle(const std::vector<double>& ascending) { return quantile(ascending, 0.5); }

// This many requests at once, all of that length.
ThroughputShape shape_of(std::int64_t requests, std::int64_t input_tokens, std::int64_t output_tokens) {
    return {.requests = requests, .input_tokens = {input_tokens, input_tokens}, .output_tokens = {output_tokens, output_tokens}};
}

ThroughputResult best_run(const Course& course, EngineSetup& setup, const ThroughputShape& shape) {
    std::optional<ThroughputResult> best;
    for (Tries tries = tries_of(course); tries.another();) {
        ThroughputResult result = run_throughput(setup, shape, 1);
        if (!best || result.seconds < best->seconds) best = std::move(result);
    }
    return *std::move(best);
}

void kv_cache(Course& course, Experiment& experiment) {
    constexpr std::int64_t drawn = 9;  // the first comes from the prompt; the mean of the next eight counts
    Table& table = experiment.table;
    table.columns = {{"tokens", "sequence length"},
                     {"cached_seconds", "with KV cache, ms", kilo, 2},
                     {"uncached_seconds", "without, ms", kilo, 2},
                     {"ratio", "ratio", 1.0, 1}};
    const std::int64_t length_max = std::min<std::int64_t>(course.setup.engine().context_max(), course.quick ? course_context : 2048);
    for (std::int64_t length = 16; length <= length_max; length *= 2) {
        double cached = std::numeric_limits<double>::max();
        double uncached = cached;
        for (Tries tries = tries_of(course); tries.another();) {
            cached = std::min(cached, run_throughput(course.setup, shape_of(1, length - drawn, drawn), 1).per_token.front());
            uncached = std::min(uncached, run_throughput(course.setup, shape_of(1, length - 1, 1), 1).seconds);
        }
        table.rows.push_back({real(length), cached, uncached, uncached / cached});
    }
    const std::size_t last = table.rows.size() - 1;
    experiment.finding = fmt::format(
        "Without a KV cache a token computes all tokens before it again: in a sequence of {} that takes {:.1f} times as long as with one.",
        show_count(std::lround(table.number(last, 0))), table.number(last, 3));
    experiment.charts.push_back({.name = "kv-cache",
                                 .title = "Time per token, with and without a KV cache",
                                 .x = {"sequence length, tokens", AxisScale::log2},
                                 .y = {"ms per token", AxisScale::log10},
                                 .series = {table.series("with KV cache", 0, 1), table.series("without", 0, 2)}});
}

void batch_size(Course& course, Experiment& experiment) {
    Table& table = experiment.table;
    table.columns = {{"batch", "batch size"},
                     {"tokens_per_second", "tokens/s"},
                     {"per_token_seconds", "per token, ms", kilo, 2},
                     {"first_token_seconds", "first token, ms", kilo, 1},
                     {"end_seconds", "whole request, ms", kilo, 1}};
    for (std::int64_t batch = 1; batch <= batch_max(course); batch *= 2) {
        const auto result = best_run(course, course.setup, shape_of(batch, 32, 32));
        table.rows.push_back(
            {real(batch), tokens_per_second(result), middle(result.per_token), middle(result.first_token), middle(result.end)});
    }
    const std::size_t last = table.rows.size() - 1;
    experiment.finding = fmt::format(
        "A step reads the weights once for all of its rows: {:.0f} requests at a time make {:.1f} times the tokens per second of one, and "
        "wait {:.1f} times as long for each of theirs.",
        table.number(last, 0), table.number(last, 1) / table.number(0, 1), table.number(last, 2) / table.number(0, 2));
    const Axis x{"batch size, requests", AxisScale::log2};
    experiment.charts.push_back({.name = "batch-throughput",
                                 .title = "Throughput against batch size",
                                 .x = x,
                                 .y = {"tokens/s"},
                                 .series = {table.series("tokens/s", 0, 1)}});
    experiment.charts.push_back(
        {.name = "batch-latency",
         .title = "Latency against batch size (median)",
         .x = x,
         .y = {"ms", AxisScale::log10},
         .series = {table.series("per token", 0, 2), table.series("first token", 0, 3), table.series("whole request", 0, 4)}});
}

void queue(Course& course, Experiment& experiment) {
    Table& table = experiment.table;
    table.columns = {{"way", "way"},     {"seconds", "seconds", 1.0, 3},           {"tokens_per_second", "tokens/s"},
                     {"steps", "steps"}, {"latency_p50_seconds", "p50 s", 1.0, 3}, {"latency_p99_seconds", "p99 s", 1.0, 3}};
    const QueueShape shape = course.quick ? QueueShape{.jobs = 8, .batch = 4, .long_every = 4, .output_tokens_long = 30} : QueueShape{};
    for (const QueueWay way : queue_ways) {
        const QueueResult result = run_queue(course.setup, shape, way, course.quick ? 1 : 3);
        table.rows.push_back({fmt::format("{}, {}", way.continuous ? "continuous" : "static", way.kv_cache ? "KV cache" : "no cache"),
                              result.seconds, result.tokens_per_second(), static_cast<double>(result.steps),
                              quantile(result.latencies, 0.5), quantile(result.latencies, 0.99)});
    }
    const auto bars = [&](const char* name, bool continuous) {
        Series series{.name = name};
        for (std::size_t way = 0; way < queue_ways.size(); ++way) {
            if (queue_ways[way].continuous == continuous)
                series.points.push_back({.x = queue_ways[way].kv_cache ? 1.0 : 0.0, .y = table.number(way, 2)});
        }
        return series;
    };
    experiment.finding = fmt::format(
        "{} jobs, {} at a time, one in {} writes {} tokens and the others {}: static batching waits for the slowest of a batch, continuous "
        "batching gives its place to the next job at once and makes {:.2f} times the tokens per second, with the KV cache.",
        shape.jobs, shape.batch, shape.long_every, shape.output_tokens_long, shape.output_tokens, table.number(3, 2) / table.number(2, 2));
    experiment.charts.push_back({.name = "queue",
                                 .title = fmt::format("A queue of {} short and long jobs, {} at a time", shape.jobs, shape.batch),
                                 .y = {"tokens/s"},
                                 .categories = {"without KV cache", "with KV cache"},
                                 .series = {bars("static batching", false), bars("continuous batching", true)}});
}

void memory(Course& course, Experiment& experiment) {
    Table& table = experiment.table;
    table.columns = {{"weights", "weights"},
                     {"weight_bytes", "weights, MiB", mebi, 1},
                     {"share", "of float32, %", percent},
                     {"kv_bytes", "KV cache of 1,000 tokens, MiB", mebi, 1},
                     {"tokens_per_second", "tokens/s, 8 at a time"}};
    for (const StorageFormat& format : storage_formats) {
        Settings own = course.settings;
        format.put_into(own);
        EngineSetup setup(own, {.plain_decoding = true});
        const auto bytes = static_cast<double>(setup.model().weight_bytes());
        const double widest = table.rows.empty() ? bytes : table.number(0, 1);
        table.rows.push_back({storage_name(storage_options(own)), bytes, bytes / widest,
                              1000.0 * static_cast<double>(setup.kv_token_bytes()),
                              tokens_per_second(best_run(course, setup, shape_of(8, 32, 32)))});
    }
    const std::size_t last = table.rows.size() - 1;
    experiment.finding = fmt::format(
        "Narrower weights leave more memory to the KV cache: {} takes {:.0f} % of {}'s bytes and makes {:.1f} times its tokens per second.",
        table.words(0)[last], percent * table.number(last, 2), table.words(0)[0], table.number(last, 4) / table.number(0, 4));
    experiment.charts.push_back({.name = "memory",
                                 .title = "Memory by weight format",
                                 .y = {"MiB"},
                                 .categories = table.words(0),
                                 .series = {table.series("weights", 0, 1), table.series("KV cache of 1,000 tokens", 0, 3)}});
}

void multi_lora(Course& course, Experiment& experiment) {
    Table& table = experiment.table;
    table.columns = {{"rows", "batch size"},
                     {"adapters", "adapters"},
                     {"loop_seconds", "a call per adapter, ms", kilo, 3},
                     {"gathered_seconds", "gathered per row, ms", kilo, 3},
                     {"segments_seconds", "segments, ms", kilo, 3}};
    const std::int64_t rows_max = batch_max(course);
    const LoraShape shape{.adapters = rows_max, .rows = rows_max};
    LoraWays ways(course.setup.model().config(), cpu_options(course.settings), shape);
    constexpr std::array all = {LoraWay::loop, LoraWay::gathered, LoraWay::segments};
    // First a few adapters share the rows, then each row has its own.
    const std::int64_t few = course.quick ? 2 : 8;
    const std::array adapters_at_most = {few, rows_max};
    for (const std::int64_t most : adapters_at_most) {
        Table part{.columns = table.columns};
        for (std::int64_t rows = 1; rows <= rows_max; rows *= 2) {
            const std::int64_t adapters = std::min(rows, most);
            const std::vector<double> best =
                least_in_turn(tries_of(course), all.size(), [&](std::size_t way) { return ways.run(all[way], rows, adapters); });
            part.rows.push_back({real(rows), real(adapters), best[0], best[1], best[2]});
        }
        experiment.charts.push_back(
            {.name = most == few ? "multi-lora" : "multi-lora-distinct",
             .title = most == few ? fmt::format("Low-rank updates of a batch with {} adapters", few)
                                  : "Low-rank updates of a batch with an adapter for each row",
             .x = {"batch size, rows", AxisScale::log2},
             .y = {"ms", AxisScale::log10},
             .series = {part.series("a call per adapter", 0, 2), part.series("gathered per row", 0, 3), part.series("segments", 0, 4)}});
        table.rows.insert(table.rows.end(), part.rows.begin(), part.rows.end());
    }
    const std::size_t shared = table.rows.size() / 2 - 1;
    experiment.finding = fmt::format(
        "The low-rank updates (rank {}, all linear modules, {} layers) of a batch's rows: at {:.0f} rows of {:.0f} adapters, a call per "
        "adapter takes {:.2f} times and gathering each row's weights {:.1f} times as long as one call over segments of equal adapters.",
        shape.rank, ways.layers(), table.number(shared, 0), table.number(shared, 1), table.number(shared, 2) / table.number(shared, 4),
        table.number(shared, 3) / table.number(shared, 4));
}

std::vector<engine::AdapterSource> random_adapters(const Course& course, std::int64_t count) {
    constexpr std::array<std::int64_t, 1> ranks = {16};
    write_random_adapters(course.settings.model, count, count, ranks, course.scratch);
    std::vector<engine::AdapterSource> sources;
    for (std::int64_t i = 0; i < count; ++i) {
        const std::filesystem::path folder = course.scratch / fmt::format("lora-{}", i);
        const auto info = engine::inspect_adapter(folder, course.setup.model().config());
        if (!info) throw std::runtime_error(fmt::format("{}: {}", folder.string(), info.error()));
        sources.push_back({info->hash, folder});
    }
    return sources;
}

using Models = std::vector<std::optional<engine::AdapterSource>>;

void mixing(Course& course, Experiment& experiment) {
    constexpr std::int64_t quarters = 4;
    constexpr std::int64_t drawn = 32;
    const std::int64_t requests = batch_max(course) / 2;
    Models models{std::nullopt};
    for (engine::AdapterSource& adapter : random_adapters(course, 4)) models.emplace_back(std::move(adapter));
    const auto seconds_of = [&](const Models& of_requests) {
        ThroughputShape shape = shape_of(std::ssize(of_requests), 32, drawn);
        shape.models = of_requests;
        return run_throughput(course.setup, shape, 1).seconds;
    };
    seconds_of(models);  // loads the adapters

    Table& table = experiment.table;
    table.columns = {{"adapter_share", "rows with adapters, %", percent},
                     {"mixed_tokens_per_second", "in one batch, tokens/s"},
                     {"apart_tokens_per_second", "a batch for each, tokens/s"},
                     {"of_base", "one batch, % of base alone", percent}};
    for (std::int64_t share = 0; share <= quarters; ++share) {
        const std::int64_t of_adapters = requests * share / quarters;
        std::vector<Models> batches(models.size());
        batches[0].resize(static_cast<std::size_t>(requests - of_adapters));
        for (std::int64_t i = 0; i < of_adapters; ++i) {
            const auto model = static_cast<std::size_t>(1 + i % (std::ssize(models) - 1));
            batches[model].push_back(models[model]);
        }
        std::erase_if(batches, [](const Models& batch) { return batch.empty(); });
        Models all;
        for (const Models& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
        double mixed = std::numeric_limits<double>::max();
        double apart = mixed;
        for (Tries tries = tries_of(course); tries.another();) {
            mixed = std::min(mixed, seconds_of(all));
            double seconds = 0.0;
            for (const Models& batch : batches) seconds += seconds_of(batch);
            apart = std::min(apart, seconds);
        }
        if (of_adapters == 0) mixed = apart = std::min(mixed, apart);  // both did the same work
        const double rate = real(requests * drawn) / mixed;
        table.rows.push_back(
            {real(share) / quarters, rate, real(requests * drawn) / apart, rate / (table.rows.empty() ? rate : table.number(0, 1))});
    }
    experiment.finding = fmt::format(
        "{} requests over the base model and {} adapters of rank 16: with half of the rows on adapters one batch makes {:.0f} % of the "
        "tokens per second of the base alone; a batch for the base and one for each adapter, one after the other, make {:.0f} %.",
        requests, models.size() - 1, percent * table.number(2, 3), percent * table.number(2, 2) / table.number(0, 1));
    experiment.charts.push_back({.name = "mixing",
                                 .title = "Mixing base and adapter rows",
                                 .x = {"rows with adapters, %"},
                                 .y = {"tokens/s"},
                                 .series = {table.series("in one batch", 0, 1), table.series("a batch for each", 0, 2)}});
}

void streaming(Course& course, Experiment& experiment) {
    ThroughputShape shape = shape_of(course.quick ? 8 : 96, 32, 32);
    const ThroughputResult silent = best_run(course, course.setup, shape);
    shape.stream = true;
    const ThroughputResult full = best_run(course, course.setup, shape);
    const double capacity = static_cast<double>(shape.requests) / full.seconds;

    Table& table = experiment.table;
    table.columns = {{"load", "load, %", percent},
                     {"jobs_per_second", "jobs/s", 1.0, 1},
                     {"tokens_per_second", "tokens/s"},
                     {"first_token_p50_seconds", "first token p50, ms", kilo, 1},
                     {"first_token_p90_seconds", "first token p90, ms", kilo, 1},
                     {"per_token_p50_seconds", "per token p50, ms", kilo, 2}};
    for (const double load : {0.25, 0.5, 0.75, 1.0, 1.5}) {
        shape.arrivals_per_second = load * capacity;
        const ThroughputResult result = run_throughput(course.setup, shape, 1);
        table.rows.push_back({load, load * capacity, tokens_per_second(result), middle(result.first_token),
                              quantile(result.first_token, 0.9), middle(result.per_token)});
    }
    experiment.finding = fmt::format(
        "Jobs that stream arrive at random times: half of them have a first token after {:.0f} ms at half load (100 % is what the machine "
        "does with all jobs there at once) and after {:.0f} ms at full load; streaming itself leaves {:.0f} % of the tokens per second.",
        kilo * table.number(1, 3), kilo * table.number(3, 3), percent * tokens_per_second(full) / tokens_per_second(silent));
    const Axis x{"load, % of what is done with all jobs there at once"};
    experiment.charts.push_back({.name = "streaming-first-token",
                                 .title = "Time to the first token of streamed jobs",
                                 .x = x,
                                 .y = {"ms", AxisScale::log10},
                                 .series = {table.series("p50", 0, 3), table.series("p90", 0, 4)}});
    experiment.charts.push_back({.name = "streaming-throughput",
                                 .title = "Throughput of streamed jobs",
                                 .x = x,
                                 .y = {"tokens/s"},
                                 .series = {table.series("tokens/s", 0, 2)}});
}

constexpr std::array experiments = {
    CourseRow{"kv-cache", "Time per token with and without KV cache", kv_cache},
    CourseRow{"batch", "Throughput and latency against batch size", batch_size},
    CourseRow{"queue", "A queue of jobs: static against continuous batching", queue},
    CourseRow{"memory", "Memory by weight format", memory},
    CourseRow{"multi-lora", "Three ways to apply many adapters", multi_lora},
    CourseRow{"mixing", "Mixing base and adapter rows", mixing},
    CourseRow{"streaming", "First token and throughput of streamed jobs", streaming},
    CourseRow{"quantize", "Classifiers in float32, bfloat16 and int8", quantize},
};

}  // namespace

Tries tries_of(const Course& course) { return course.quick ? Tries(1, {}) : Tries(3, std::chrono::milliseconds(500)); }

std::span<const CourseRow> course_table() { return experiments; }

Experiment run_experiment(const CourseRow& row, Course& course) {
    Experiment experiment{.name = row.name, .title = row.title};
    row.run(course, experiment);
    return experiment;
}

}  // namespace lorry::ops
