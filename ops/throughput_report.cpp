// Rates, shares and quantiles of one run.
#include "ops/throughput_report.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "ops/bench_requests.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using kernels::cpu::Rates;
using schema::Json;

constexpr std::array shares = {0.5, 0.9, 0.99};

// Of the fastest instructions that sums over these weights may use.
double operations_limit(const Rates& rates, const kernels::CpuOptions& options) {
    if (options.quantize != kernels::Quantization::none) return std::max(rates.float32, rates.int8_dot.value_or(0.0));
    if (options.weights == kernels::Format::float32) return rates.float32;
    return std::max(rates.float32, rates.bfloat16_dot.value_or(0.0));
}

// The figures that text and JSON have in common; all but the sums are per second or per step.
struct Figures {
    double requests = 0.0;
    double tokens_in = 0.0;  // those from the prefix cache included
    double tokens_out = 0.0;
    double step_seconds = 0.0;
    Work step;                                       // base and adapters
    Work adapters;                                   // of a step
    Work rate;                                       // per second
    double adapters_step = 0.0;                      // different ones
    std::optional<double> seconds_at_least;          // each step at the machine's limits
    std::optional<double> adapter_seconds_at_least;  // their part on top of the base
};

Figures figures_of(const ThroughputReport& report) {
    const ThroughputResult& result = report.result;
    const auto steps = static_cast<double>(result.steps);
    const auto by = [](const Work& work, double count) { return Work{work.bytes / count, work.operations / count}; };
    Work all = sum_of(result.base_steps);
    const Work adapters = sum_of(result.adapter_steps);
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
        const double read = report.limits->rates.read;
        figures.adapter_seconds_at_least = seconds_at_least(result.adapter_steps, read, report.limits->adapter_operations);
        figures.seconds_at_least = seconds_at_least(result.base_steps, read, report.limits->operations) + *figures.adapter_seconds_at_least;
    }
    return figures;
}

Json quantiles_json(const std::vector<double>& ascending) {
    Json values = Json(Json::Object{});
    if (ascending.empty()) return values;
    for (const double share : shares) values.set(fmt::format("p{:.0f}_seconds", share * 100), quantile(ascending, share));
    return values;
}

std::string show_quantiles(const std::vector<double>& ascending) {
    std::string text;
    for (const double share : shares) text += fmt::format("{}{:.1f} ms", text.empty() ? "" : " / ", quantile(ascending, share) * 1e3);
    return text;
}

std::string show_percent(double part, double whole) { return fmt::format("{:.0f} %", 100.0 * part / whole); }
std::string show_count(std::uint64_t count) { return ops::show_count(static_cast<std::int64_t>(count)); }
std::string show_bytes(double bytes) { return ops::show_bytes(static_cast<std::size_t>(bytes)); }
std::string show_billions(double operations) { return fmt::format("{:.2f} billion", operations * 1e-9); }

// "copy 34.8 GB/s, read …"; what the processor cannot do is left out.
std::string show_rates(const Rates& rates) {
    std::string text = fmt::format("copy {}, read {}, float32 {}", show_giga(rates.copy, "GB/s"), show_giga(rates.read, "GB/s"),
                                   show_giga(rates.float32, "GFLOP/s"));
    if (rates.bfloat16_dot) text += fmt::format(", bfloat16 {}", show_giga(*rates.bfloat16_dot, "GFLOP/s"));
    if (rates.int8_dot) text += fmt::format(", int8 {}", show_giga(*rates.int8_dot, "GOP/s"));
    return text;
}

}  // namespace

MachineLimits limits_of(const Rates& rates, kernels::CpuOptions options) {
    MachineLimits limits{.rates = rates, .operations = operations_limit(rates, options)};
    options.quantize = kernels::Quantization::none;
    limits.adapter_operations = operations_limit(rates, options);
    return limits;
}

std::string throughput_text(const ThroughputReport& report) {
    const ThroughputResult& result = report.result;
    const Figures figures = figures_of(report);
    std::string bytes = fmt::format("{} a step: {}", show_bytes(figures.step.bytes), show_giga(figures.rate.bytes, "GB/s"));
    std::string operations =
        fmt::format("{} a step: {}", show_billions(figures.step.operations), show_giga(figures.rate.operations, "GFLOP/s"));
    if (report.limits) {
        const double read = report.limits->rates.read;
        const double limit = report.limits->operations;
        bytes +=
            fmt::format(", {} of the {} that memory was seen to deliver", show_percent(figures.rate.bytes, read), show_giga(read, "GB/s"));
        operations += fmt::format(", {} of the {} that the processor was seen to do", show_percent(figures.rate.operations, limit),
                                  show_giga(limit, "GFLOP/s"));
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
        rows.push_back({"at least", fmt::format("{:.2f} s, if every step took what its bytes or its operations take there: {} of the time",
                                                *figures.seconds_at_least, show_percent(*figures.seconds_at_least, result.seconds))});
    }
    if (result.adapter_groups > 0) {
        rows.push_back({"adapters", fmt::format("{:.1f} a step, {} and {} operations of it", figures.adapters_step,
                                                show_bytes(figures.adapters.bytes), show_billions(figures.adapters.operations))});
    }
    if (report.base_seconds) {
        const double added = result.seconds - *report.base_seconds;
        std::string text = fmt::format("{:.2f} of the base's throughput: they add {:.2f} s", *report.base_seconds / result.seconds, added);
        if (figures.adapter_seconds_at_least) {
            text += fmt::format(", {:.2f} times the {:.2f} s that their bytes and operations take at least",
                                added / *figures.adapter_seconds_at_least, *figures.adapter_seconds_at_least);
        }
        rows.push_back({"", text});
    }
    rows.push_back({"memory at most", ops::show_bytes(report.memory_peak)});
    if (report.limits) rows.push_back({"the machine", show_rates(report.limits->rates)});
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
    json.set("memory_peak_bytes", report.memory_peak);
    if (report.limits) {
        json.set("bytes_share", figures.rate.bytes / report.limits->rates.read);
        json.set("operations_share", figures.rate.operations / report.limits->operations);
        json.set("operations_limit_per_second", report.limits->operations);
        json.set("seconds_at_least", *figures.seconds_at_least);
        json.set("seconds_at_least_share", *figures.seconds_at_least / result.seconds);
        json.set("machine", rates_json(report.limits->rates));
    }
    if (result.adapter_groups > 0) {
        Json adapters = Json::object({{"per_step", figures.adapters_step},
                                      {"step_bytes", figures.adapters.bytes},
                                      {"step_operations", figures.adapters.operations},
                                      {"seconds_at_least", figures.adapter_seconds_at_least}});
        if (report.base_seconds) {
            const double added = result.seconds - *report.base_seconds;
            adapters.set("base_seconds", *report.base_seconds);
            adapters.set("throughput_of_base", *report.base_seconds / result.seconds);
            adapters.set("added_seconds", added);
            if (figures.adapter_seconds_at_least) adapters.set("added_of_least", added / *figures.adapter_seconds_at_least);
        }
        json.set("adapters", std::move(adapters));
    }
    return json;
}

Json rates_json(const Rates& rates) {
    return Json::object({{"threads", rates.threads},
                         {"copy_bytes_per_second", rates.copy},
                         {"read_bytes_per_second", rates.read},
                         {"float32_operations_per_second", rates.float32},
                         {"bfloat16_dot_operations_per_second", rates.bfloat16_dot},
                         {"int8_dot_operations_per_second", rates.int8_dot}});
}

}  // namespace lorry::ops
