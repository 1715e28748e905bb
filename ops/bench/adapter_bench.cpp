// Warms the cache, then keeps the window full until the backlog is done.
#include "ops/bench/adapter_bench.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <unordered_map>

#include "ops/bench/workload.h"

namespace lorry::ops {
namespace {

constexpr std::uint64_t draw_seed = 1;

}  // namespace

AdapterResult run_adapters(EngineSetup& setup, const AdapterShape& shape, const AdapterWay& way) {
    engine::EngineOptions options = setup.options();
    options.adapter_bytes = way.adapter_bytes;
    options.group_adapters = way.group;
    options.lend_blocks = way.borrow;
    engine::Engine& engine = setup.replace_engine(options);

    const auto made_up_request = [&](engine::RequestId id, std::int64_t input, std::int64_t output, const engine::AdapterSource& adapter) {
        engine::Request request = greedy_request(id, made_up_prompt(setup.model().config(), id, input), output);
        request.adapter = adapter;
        return request;
    };
    engine::RequestId id = 0;
    // The popular adapters last, so that they are the ones that stay.
    std::vector<engine::Request> cold;
    for (auto adapter = shape.adapters.rbegin(); adapter != shape.adapters.rend(); ++adapter, ++id)
        cold.push_back(made_up_request(id, 1, 1, *adapter));
    keep_full(engine, 1, cold, [](const engine::Result&) {});

    std::vector<double> weights;
    for (std::size_t place = 1; place <= shape.adapters.size(); ++place)
        weights.push_back(std::pow(static_cast<double>(place), -shape.exponent));
    std::discrete_distribution<std::size_t> choose(weights.begin(), weights.end());
    std::mt19937_64 random(draw_seed);
    struct Asked {
        std::size_t adapter = 0;
        engine::Clock::time_point submitted;
    };
    std::unordered_map<engine::RequestId, Asked> asked;
    std::map<std::size_t, std::vector<double>> waits;  // by adapter
    std::int64_t left = shape.requests;
    AdapterResult result;
    const engine::EngineStats before = engine.stats();
    const engine::Clock::time_point begin = engine::Clock::now();
    keep_full(
        engine, static_cast<std::size_t>(shape.in_flight),
        [&]() -> std::optional<engine::Request> {
            if (left-- == 0) return std::nullopt;
            const std::size_t adapter = choose(random);
            const std::int64_t output = shape.output_tokens.draw(random);
            const std::int64_t input = shape.input_tokens.draw(random);
            engine::Request request = made_up_request(id++, input, output, shape.adapters[adapter]);
            asked.emplace(request.id, Asked{adapter, engine::Clock::now()});
            return request;
        },
        [&](const engine::Result& done) {
            const Asked& was = asked.at(done.id);
            waits[was.adapter].push_back(std::chrono::duration<double>(done.started - was.submitted).count());
        });
    result.seconds = std::chrono::duration<double>(engine::Clock::now() - begin).count();
    const engine::EngineStats after = engine.stats();
    result.drawn_tokens = after.drawn_tokens - before.drawn_tokens;
    result.steps = after.steps - before.steps;
    result.loads = after.adapters.loads - before.adapters.loads;
    result.adapter_bytes = after.adapters.resident_bytes;
    result.adapters_per_step = static_cast<double>(after.adapter_groups - before.adapter_groups) / static_cast<double>(result.steps);
    for (const auto& [adapter, each] : waits) {
        double sum = 0.0;
        for (const double wait : each) sum += wait;
        result.waits.push_back(sum / static_cast<double>(each.size()));
    }
    std::ranges::sort(result.waits);
    return result;
}

}  // namespace lorry::ops
