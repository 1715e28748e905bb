// Submits requests when they arrive, and steps until all are done.
#include "ops/bench/throughput_bench.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>
#include <utility>

#include "engine/model/model_layout.h"
#include "ops/bench/workload.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

// A request's index determines its lengths, whatever the seed, so all runs have the same work. Its tokens are made from its id, and the
// shared ones from `shared_number`.
engine::Request request_of(const EngineSetup& setup, const ThroughputShape& shape, std::uint64_t shared_number, std::size_t index) {
    const engine::ModelConfig& config = setup.model().config();
    std::mt19937_64 random(index);
    const std::int64_t input = shape.input_tokens.draw(random);
    const std::uint64_t number = shared_number + 1 + index;
    auto prompt = made_up_prompt(config, number, input);
    std::ranges::copy(made_up_prompt(config, shared_number, std::min(shape.shared_tokens, input)), prompt.begin());
    engine::Request request = greedy_request(number, std::move(prompt), shape.output_tokens.draw(random));
    request.adapter = shape.models[index % shape.models.size()];
    request.stream = shape.stream;
    request.drawing = engine::shared({.sampling = shape.sampling});
    request.seed = number;
    return request;
}

// Arrival times in seconds from the start, ascending: exponential gaps, scaled to the requested rate.
std::vector<double> arrivals_of(const ThroughputShape& shape, std::uint64_t seed) {
    std::vector<double> arrivals(static_cast<std::size_t>(shape.requests), 0.0);
    if (!shape.arrivals_per_second) return arrivals;
    std::mt19937_64 random(seed);
    std::exponential_distribution<double> gap;
    for (std::size_t i = 1; i < arrivals.size(); ++i) arrivals[i] = arrivals[i - 1] + gap(random);
    const double stretch = static_cast<double>(shape.requests - 1) / *shape.arrivals_per_second / std::max(arrivals.back(), 1e-9);
    for (double& arrival : arrivals) arrival *= stretch;
    return arrivals;
}

// What the engine counted during one step.
struct StepCounts {
    std::int64_t rows = 0;
    std::int64_t sampled_rows = 0;
    std::int64_t attended_tokens = 0;
    std::int64_t context_tokens = 0;
    std::int64_t adapter_elements = 0;
    std::int64_t adapter_products = 0;
};
StepCounts counts_between(const engine::EngineStats& before, const engine::EngineStats& after) {
    const auto count = [&](std::uint64_t engine::EngineStats::*field) { return static_cast<std::int64_t>(after.*field - before.*field); };
    return {.rows = count(&engine::EngineStats::rows),
            .sampled_rows = count(&engine::EngineStats::sampled_rows),
            .attended_tokens = count(&engine::EngineStats::attended_tokens),
            .context_tokens = count(&engine::EngineStats::context_tokens),
            .adapter_elements = count(&engine::EngineStats::adapter_elements),
            .adapter_products = count(&engine::EngineStats::adapter_products)};
}

// What a row is multiplied with in a layer after attention's q, k and v.
double row_weights_after_qkv(const engine::ModelConfig& config, std::int64_t layer) {
    double width = real(config.intermediate_of(layer));
    double router = 0.0;
    if (config.has_experts(layer)) {
        width += real(config.experts->chosen * config.experts->intermediate);
        router = real(config.experts->count);
    }
    return real(config.hidden) * (real(config.heads * config.head_dim) + (config.gated ? 3.0 : 2.0) * width + router);
}

Work matmul_work(const engine::Model& model, const StepCounts& step) {
    using enum engine::Projection;
    const engine::ModelConfig& config = model.config();
    const auto from_hidden = [&](engine::Projection projection) {
        return real(engine::out_features_of(config, projection)) * real(config.hidden);
    };
    // In the last layer only rows that sample continue after attention.
    double row_weights = real(config.layers) * from_hidden(qkv);
    for (std::int64_t layer = 0; layer + 1 < config.layers; ++layer) row_weights += row_weights_after_qkv(config, layer);
    const double sampled_row_weights = row_weights_after_qkv(config, config.layers - 1) + from_hidden(head);
    return {.bytes = static_cast<double>(model.step_bytes(step.rows, step.sampled_rows)),
            .operations = 2.0 * (real(step.rows) * row_weights + real(step.sampled_rows) * sampled_row_weights)};
}

Work attention_work(const EngineSetup& setup, const StepCounts& step) {
    const engine::ModelConfig& config = setup.model().config();
    return {.bytes = real(step.context_tokens) * static_cast<double>(setup.kv_token_bytes()),
            .operations = 4.0 * real(step.attended_tokens) * real(config.layers * config.heads * config.head_dim)};
}

Work adapter_work(const EngineSetup& setup, const StepCounts& step) {
    return {.bytes = real(step.adapter_elements) * static_cast<double>(kernels::bytes_of(setup.adapter_format())),
            .operations = 2.0 * real(step.adapter_products)};
}

// Deviations of a normal distribution that nine of ten and 999 of a thousand do not exceed.
constexpr double decile_deviations = 1.2815515655446004;
constexpr double cut_deviations = 3.090232306167813;

// The standard deviation of the lengths' logarithms.
double deviation_of(const LongTail& tail) { return std::log(real(tail.p90) / real(tail.median)) / decile_deviations; }

std::optional<TokenRange> parse_long_tail(std::string_view text) {
    constexpr double high_most = 1e9;  // far more than any context holds
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    const auto median = parse_integer(text.substr(0, colon));
    const auto p90 = parse_integer(text.substr(colon + 1));
    if (!median || !p90 || *median < 1 || *p90 <= *median) return std::nullopt;
    const LongTail tail{.median = *median, .p90 = *p90};
    const double cut = std::exp(cut_deviations * deviation_of(tail));
    const double high = real(tail.median) * cut;
    if (high > high_most) return std::nullopt;
    return TokenRange{std::max<std::int64_t>(std::llround(real(tail.median) / cut), 1), std::llround(high), tail};
}

}  // namespace

void DecodeSteps::add(std::uint64_t step_rows, std::uint64_t step_context_tokens, double step_seconds) {
    if (step_rows < rows) return;
    if (step_rows > rows) *this = {.rows = step_rows};
    const auto before = static_cast<double>(seconds.size());
    context_tokens = (context_tokens * before + static_cast<double>(step_context_tokens)) / (before + 1.0);
    seconds.insert(std::ranges::upper_bound(seconds, step_seconds), step_seconds);
}

std::int64_t TokenRange::draw(std::mt19937_64& random) const {
    if (long_tail) {
        std::lognormal_distribution<double> tail(std::log(real(long_tail->median)), deviation_of(*long_tail));
        return std::clamp(std::llround(tail(random)), static_cast<long long>(low), static_cast<long long>(high));
    }
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

std::optional<TokenRange> parse_token_range(std::string_view text) {
    constexpr std::string_view lognormal = "lognormal:";
    if (text.starts_with(lognormal)) return parse_long_tail(text.substr(lognormal.size()));
    const std::size_t colon = text.find(':');
    const auto low = parse_integer(text.substr(0, colon));
    const auto high = colon == std::string_view::npos ? low : parse_integer(text.substr(colon + 1));
    if (!low || !high || *low < 1 || *high < *low) return std::nullopt;
    return TokenRange{*low, *high};
}

bool is_better(const ThroughputResult& one, const ThroughputResult& other) {
    return one.decode.rows != other.decode.rows ? one.decode.rows > other.decode.rows : one.seconds < other.seconds;
}

ThroughputResult run_throughput(EngineSetup& setup, const ThroughputShape& shape, std::uint64_t seed) {
    engine::Engine& engine = setup.engine();
    const engine::EngineStats before = engine.stats();
    const std::uint64_t graph_steps_before = setup.device().graph_steps;
    double idle_before = 0.0;
    const engine::Clock::time_point begin = engine::Clock::now();
    const auto since_begin = [&](engine::Clock::time_point time) { return std::chrono::duration<double>(time - begin).count(); };
    const std::vector<double> arrivals = arrivals_of(shape, seed);
    const std::uint64_t shared_number = seed * (arrivals.size() + 1);
    std::size_t arrived = 0;

    ThroughputResult result;
    engine::StepOutput output;
    engine::EngineStats last = before;
    while (arrived < arrivals.size() || engine.has_work()) {
        for (; arrived < arrivals.size() && arrivals[arrived] <= since_begin(engine::Clock::now()); ++arrived) {
            engine.submit(request_of(setup, shape, shared_number, arrived));
        }
        if (!engine.has_work()) {
            std::this_thread::sleep_until(
                begin + std::chrono::duration_cast<engine::Clock::duration>(std::chrono::duration<double>(arrivals[arrived])));
            continue;
        }
        const engine::Clock::time_point step_begin = engine::Clock::now();
        if (!step_or_wait(engine, output)) continue;
        const engine::Clock::time_point now = engine::Clock::now();
        const engine::EngineStats stepped = engine.stats();
        // The device counts idle time before this run with its first step.
        if (last.steps == before.steps) idle_before = setup.device().idle_seconds;
        const StepCounts step = counts_between(std::exchange(last, stepped), stepped);
        if (step.rows == step.sampled_rows) {
            result.decode.add(static_cast<std::uint64_t>(step.rows), static_cast<std::uint64_t>(step.context_tokens),
                              std::chrono::duration<double>(now - step_begin).count());
        }
        result.matmul_steps.push_back(matmul_work(setup.model(), step));
        result.attention_steps.push_back(attention_work(setup, step));
        result.adapter_steps.push_back(adapter_work(setup, step));
        for (const engine::Result& done : output.results) {
            const double arrival = arrivals[done.id - shared_number - 1];
            const double first = since_begin(done.first_token) - arrival;
            const double end = since_begin(now) - arrival;
            result.first_token.push_back(first);
            result.end.push_back(end);
            if (done.tokens.size() > 1) result.per_token.push_back((end - first) / static_cast<double>(done.tokens.size() - 1));
        }
    }
    result.seconds = since_begin(engine::Clock::now());
    const kernels::DeviceInfo device_after = setup.device();
    result.idle_seconds = device_after.idle_seconds - idle_before;
    result.graph_steps = device_after.graph_steps - graph_steps_before;
    for (auto* values : {&result.first_token, &result.end, &result.per_token}) std::ranges::sort(*values);
    const engine::EngineStats after = engine.stats();
    result.steps = after.steps - before.steps;
    result.prompt_tokens = after.prompt_tokens - before.prompt_tokens;
    result.cached_tokens = after.cached_tokens - before.cached_tokens;
    result.drawn_tokens = after.drawn_tokens - before.drawn_tokens;
    result.preemptions = after.preemptions - before.preemptions;
    result.adapter_groups = after.adapter_groups - before.adapter_groups;
    return result;
}

}  // namespace lorry::ops
