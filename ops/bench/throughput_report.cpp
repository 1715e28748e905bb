// Computes rates, shares and quantiles of one run.
#include "ops/bench/throughput_report.h"

#include <array>
#include <vector>

#include <fmt/format.h>

#include "ops/bench/workload.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using schema::Json;

constexpr std::array shares = {0.5, 0.9, 0.99};

// The figures that text and JSON share; rates are per second, the rest per step unless noted.
struct Figures {
    double requests = 0.0;
    double tokens_in = 0.0;  // including those from the prefix cache
    double tokens_out = 0.0;
    double step_seconds = 0.0;
    Work step;                                       // base and adapters
    Work adapters;                                   // per step
    Work rate;                                       // per second
    OperationRate most;                              // the machine's limit for this mixture of operations
    double adapters_step = 0.0;                      // different adapters
    std::optional<double> seconds_at_least;          // of all steps, each at the machine's limits
    std::optional<double> adapter_seconds_at_least;  // the adapters' part of it
};

Figures figures_of(const ThroughputReport& report) {
    const ThroughputResult& result = report.result;
    const auto steps = static_cast<double>(result.steps);
    const auto by = [](const Work& work, double count) { return Work{work.bytes / count, work.operations / count}; };
    const Work matmuls = sum_of(result.matmul_steps);
    const Work attention = sum_of(result.attention_steps);
    const Work adapters = sum_of(result.adapter_steps);
    Work all = matmuls;
    all += attention;
    all += adapters;
    Figures figures{.requests = static_cast<double>(result.end.size()) / result.seconds,
                    .tokens_in = static_cast<double>(result.prompt_tokens + result.cached_tokens) / result.seconds,
                    .tokens_out = static_cast<double>(result.drawn_tokens) / result.seconds,
                    .step_seconds = result.seconds / steps,
                    .step = by(all, steps),
                    .adapters = by(adapters, steps),
                    .rate = by(all, result.seconds),
                    .adapters_step = static_cast<double>(result.adapter_groups) / steps};
    if (report.limits) {
        const MachineLimits& limits = *report.limits;
        const PacedWork paced_matmuls{result.matmul_steps, limits.matmuls.per_second};
        const PacedWork paced_attention{result.attention_steps, limits.attention.per_second};
        const PacedWork paced_adapters{result.adapter_steps, limits.adapters.per_second};
        figures.adapter_seconds_at_least = seconds_at_least({paced_adapters}, limits.bytes);
        figures.seconds_at_least = seconds_at_least({paced_matmuls, paced_attention}, limits.bytes) + *figures.adapter_seconds_at_least;
        const double seconds = matmuls.operations / limits.matmuls.per_second + attention.operations / limits.attention.per_second +
                               adapters.operations / limits.adapters.per_second;
        figures.most = {.per_second = all.operations / seconds, .of_integers = limits.matmuls.of_integers || limits.attention.of_integers};
    }
    return figures;
}

Json quantiles_json(const std::vector<double>& ascending) {
    Json values = Json(Json::Object{});
    if (ascending.empty()) return values;
    for (const double share : shares) values.set(fmt::format("p{:.0f}_seconds", share * 100), quantile(ascending, share));
    return values;
}

Json decode_json(const DecodeSteps& decode) {
    Json json = Json::object({{"rows", decode.rows}, {"steps", static_cast<std::int64_t>(decode.seconds.size())}});
    if (decode.seconds.empty()) return json;
    json.set("context_tokens", decode.context_tokens / static_cast<double>(decode.rows));
    json.set("step", quantiles_json(decode.seconds));
    return json;
}

std::string show_quantiles(const std::vector<double>& ascending) {
    std::string text;
    for (const double share : shares) text += fmt::format("{}{:.1f} ms", text.empty() ? "" : " / ", quantile(ascending, share) * 1e3);
    return text;
}

std::string show_percent(double part, double whole) { return fmt::format("{:.0f} %", 100.0 * part / whole); }
std::string show_rounded_bytes(double bytes) { return show_bytes(static_cast<std::size_t>(bytes)); }
std::string show_billions(double operations) { return fmt::format("{:.2f} billion", operations * 1e-9); }

}  // namespace

std::string throughput_text(const ThroughputReport& report) {
    const ThroughputResult& result = report.result;
    const Figures figures = figures_of(report);
    std::string bytes = fmt::format("{} a step: {}", show_rounded_bytes(figures.step.bytes), show_giga(figures.rate.bytes, "GB/s"));
    std::string operations =
        fmt::format("{} a step: {}", show_billions(figures.step.operations), show_giga(figures.rate.operations, figures.most.unit()));
    if (report.limits) {
        const double memory = report.limits->bytes;
        const OperationRate limit = figures.most;
        bytes += fmt::format(", {} of the {} that memory delivered", show_percent(figures.rate.bytes, memory), show_giga(memory, "GB/s"));
        operations += fmt::format(", {} of the {} that the processor reached", show_percent(figures.rate.operations, limit.per_second),
                                  show_giga(limit.per_second, limit.unit()));
    }
    std::vector<std::vector<std::string>> rows = {
        {"requests", fmt::format("{} in {:.2f} s: {:.2f}/s", show_count(result.end.size()), result.seconds, figures.requests)},
        {"tokens out", fmt::format("{:.0f}/s", figures.tokens_out)},
        {"tokens in", fmt::format("{:.0f}/s, {} of {} from the prefix cache", figures.tokens_in, show_count(result.cached_tokens),
                                  show_count(result.prompt_tokens + result.cached_tokens))},
        {"p50 / p90 / p99", ""},
        {"  first token", show_quantiles(result.first_token)},
        {"  per token", result.per_token.empty() ? "one token each" : show_quantiles(result.per_token)},
        {"  end", show_quantiles(result.end)},
        {"steps", fmt::format("{} of {:.2f} ms, {} preemptions", show_count(result.steps), figures.step_seconds * 1e3, result.preemptions)},
        {"bytes", bytes},
        {"operations", operations}};
    if (report.limits) {
        rows.push_back({"at least", fmt::format("{:.2f} s, if every step took the minimum for its bytes or operations: {} of the time",
                                                *figures.seconds_at_least, show_percent(*figures.seconds_at_least, result.seconds))});
    }
    if (result.adapter_groups > 0) {
        rows.push_back({"adapters", fmt::format("{:.1f} a step, {} and {} operations of it", figures.adapters_step,
                                                show_rounded_bytes(figures.adapters.bytes), show_billions(figures.adapters.operations))});
    }
    if (report.base) {
        const double added = result.seconds - report.base->seconds;
        std::string text = fmt::format("{:.2f} of the base's throughput: they add {:.2f} s", report.base->seconds / result.seconds, added);
        if (figures.adapter_seconds_at_least) {
            text += fmt::format(", {:.2f} times the {:.2f} s that their bytes and operations take at least",
                                added / *figures.adapter_seconds_at_least, *figures.adapter_seconds_at_least);
        }
        rows.push_back({"", text});
    }
    rows.push_back({"memory at most", show_bytes(report.memory_peak)});
    if (report.limits) rows.push_back({"the machine", report.limits->seen});
    return show_table(rows);
}

Json throughput_json(const ThroughputReport& report) {
    const ThroughputResult& result = report.result;
    const Figures figures = figures_of(report);
    Json json = report.circumstances;
    json.set("seconds", result.seconds);
    json.set("requests_per_second", figures.requests);
    json.set("prompt_tokens", result.prompt_tokens);
    json.set("cached_tokens", result.cached_tokens);
    json.set("drawn_tokens", result.drawn_tokens);
    json.set("tokens_in_per_second", figures.tokens_in);
    json.set("tokens_out_per_second", figures.tokens_out);
    json.set("first_token", quantiles_json(result.first_token));
    json.set("per_token", quantiles_json(result.per_token));
    json.set("end", quantiles_json(result.end));
    json.set("steps", result.steps);
    json.set("preemptions", result.preemptions);
    json.set("step_seconds", figures.step_seconds);
    json.set("step_bytes", figures.step.bytes);
    json.set("step_operations", figures.step.operations);
    json.set("bytes_per_second", figures.rate.bytes);
    json.set("operations_per_second", figures.rate.operations);
    json.set("decode", decode_json(result.decode));
    json.set("idle_seconds", result.idle_seconds);
    json.set("graph_steps", result.graph_steps);
    json.set("memory_peak_bytes", report.memory_peak);
    if (report.limits) {
        json.set("bytes_share", figures.rate.bytes / report.limits->bytes);
        json.set("operations_share", figures.rate.operations / figures.most.per_second);
        json.set("operations_limit_per_second", figures.most.per_second);
        json.set("seconds_at_least", *figures.seconds_at_least);
        json.set("seconds_at_least_share", *figures.seconds_at_least / result.seconds);
        json.set("machine", report.limits->machine);
    }
    if (result.adapter_groups > 0) {
        Json adapters = Json::object({{"per_step", figures.adapters_step},
                                      {"step_bytes", figures.adapters.bytes},
                                      {"step_operations", figures.adapters.operations},
                                      {"seconds_at_least", figures.adapter_seconds_at_least}});
        if (report.base) {
            const double added = result.seconds - report.base->seconds;
            adapters.set("base_seconds", report.base->seconds);
            adapters.set("throughput_of_base", report.base->seconds / result.seconds);
            adapters.set("added_seconds", added);
            adapters.set("base_decode", decode_json(report.base->decode));
            if (figures.adapter_seconds_at_least) adapters.set("added_of_least", added / *figures.adapter_seconds_at_least);
        }
        json.set("adapters", std::move(adapters));
    }
    return json;
}

std::string curve_text(std::span<const CurvePoint> curve) {
    std::vector<std::vector<std::string>> rows = {{"threads", "tokens/s", "by the first", "step", "of the limits", "memory's limit"}};
    const auto rate_of = [](const Figures& figures) { return figures.tokens_in + figures.tokens_out; };
    for (const CurvePoint& point : curve) {
        const Figures figures = figures_of(point.report);
        const bool limited = point.report.limits.has_value();
        rows.push_back({show_count(point.threads), fmt::format("{:.0f}", rate_of(figures)),
                        fmt::format("{:.2f}", rate_of(figures) / rate_of(figures_of(curve.front().report))),
                        fmt::format("{:.2f} ms", figures.step_seconds * 1e3),
                        limited ? show_percent(*figures.seconds_at_least, point.report.result.seconds) : "",
                        limited ? show_giga(point.report.limits->bytes, "GB/s") : ""});
    }
    return show_table(rows, 0b111111);
}

Json curve_json(std::span<const CurvePoint> curve) {
    Json points = Json::Array();
    for (const CurvePoint& point : curve) {
        Json json = Json::object({{"threads", point.threads}});
        json.set("figures", throughput_json(point.report));
        points.push(std::move(json));
    }
    return Json::object({{"curve", std::move(points)}});
}

}  // namespace lorry::ops
