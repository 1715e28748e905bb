// Keeps the batch full and asks for each adapter with one additional request.
#include "ops/bench/loading_bench.h"

#include <algorithm>
#include <stdexcept>

#include "ops/bench/workload.h"

namespace lorry::ops {
namespace {

constexpr int warm_up_steps = 8;

engine::Request request_of(const EngineSetup& setup, engine::RequestId id, std::int64_t input_tokens) {
    const engine::ModelConfig& config = setup.model().config();
    return greedy_request(id, made_up_prompt(config, id, input_tokens), config.max_positions);
}

double seconds_of_step(engine::Engine& engine) {
    engine::StepOutput output;
    const engine::Clock::time_point begin = engine::Clock::now();
    engine.step(output);
    const double seconds = std::chrono::duration<double>(engine::Clock::now() - begin).count();
    if (!output.results.empty()) throw std::runtime_error("a request ended before all adapters were loaded: ask for fewer of them");
    return seconds;
}

}  // namespace

LoadingResult run_loading(EngineSetup& setup, const LoadingShape& shape) {
    CHECK(setup.options().sequences_max == shape.requests, "an adapter's request finds the batch full");
    engine::Engine& engine = setup.engine();
    engine::RequestId id = 0;
    while (static_cast<std::int64_t>(id) < shape.requests) engine.submit(request_of(setup, id++, shape.input_tokens));
    const auto drawn = static_cast<std::uint64_t>(shape.requests * warm_up_steps);
    while (engine.stats().drawn_tokens < drawn || engine.stats().last_rows != shape.requests) seconds_of_step(engine);

    LoadingResult result;
    std::vector<double> all_quiet;
    for (const engine::AdapterSource& adapter : shape.adapters) {
        std::vector<double> quiet;
        for (std::int64_t i = 0; i < shape.quiet_steps; ++i) quiet.push_back(seconds_of_step(engine));
        std::ranges::sort(quiet);
        const double usual = quantile(quiet, 0.5);
        result.quiet_delay = std::max(result.quiet_delay, quiet.back() - usual);
        all_quiet.insert(all_quiet.end(), quiet.begin(), quiet.end());

        engine::Request request = request_of(setup, id++, shape.input_tokens);
        request.adapter = adapter;
        const std::uint64_t loads = engine.stats().adapters.loads;
        const engine::Clock::time_point begin = engine::Clock::now();
        engine.submit(std::move(request));
        for (; engine.stats().adapters.loads == loads; ++result.loading_steps)
            result.loading_delay = std::max(result.loading_delay, seconds_of_step(engine) - usual);
        result.load_seconds += std::chrono::duration<double>(engine::Clock::now() - begin).count();
    }
    for (engine::RequestId each = 0; each < id; ++each) engine.cancel(each);
    result.load_seconds /= static_cast<double>(shape.adapters.size());
    std::ranges::sort(all_quiet);
    result.step_seconds = quantile(all_quiet, 0.5);
    return result;
}

}  // namespace lorry::ops
