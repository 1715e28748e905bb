// Warms the cache, then keeps the window full until the backlog is done.
#include "ops/adapter_bench.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <unordered_map>

#include "ops/bench_requests.h"

namespace lorry::ops {
namespace {

constexpr std::uint64_t draw_seed = 1;

engine::Request request_of(const EngineSetup& setup, engine::RequestId id, std::int64_t input, std::int64_t output) {
    engine::Request request{.id = id, .prompt = made_up_prompt(setup.model().config(), id, input)};
    request.sampling.temperature = 0.0;
    request.max_tokens = output;
    return request;
}

// Keeps `window` requests with the engine until `next` has no more and all are done; tells of each that ends.
void keep_full(engine::Engine& engine, std::int64_t window, const std::function<std::optional<engine::Request>()>& next,
               const std::function<void(const engine::Result&)>& ended) {
    engine::StepOutput output;
    std::int64_t active = 0;
    bool more = true;
    for (;;) {
        while (more && active < window) {
            std::optional<engine::Request> request = next();
            more = request.has_value();
            if (!more) break;
            engine.submit(*std::move(request));
            ++active;
        }
        if (active == 0) return;
        if (!engine.step(output)) engine.wait_for_adapters(std::chrono::milliseconds(100));
        for (const engine::Result& done : output.results) {
            if (done.error) throw std::runtime_error("a request failed: " + done.error->message);
            ended(done);
            --active;
        }
    }
}

}  // namespace

AdapterResult run_adapters(EngineSetup& setup, const AdapterShape& shape, const AdapterWay& way) {
    engine::EngineOptions options = setup.options();
    options.adapter_bytes = way.adapter_bytes;
    options.group_adapters = way.group;
    engine::Engine& engine = setup.replace_engine(options);

    // The popular ones last, so that they are the ones that stay.
    engine::RequestId id = 0;
    auto cold = shape.adapters.rbegin();
    keep_full(
        engine, 1,
        [&]() -> std::optional<engine::Request> {
            if (cold == shape.adapters.rend()) return std::nullopt;
            engine::Request request = request_of(setup, id++, 1, 1);
            request.adapter = *cold++;
            return request;
        },
        [](const engine::Result&) {});

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
        engine, shape.in_flight,
        [&]() -> std::optional<engine::Request> {
            if (left-- == 0) return std::nullopt;
            const std::size_t adapter = choose(random);
            engine::Request request = request_of(setup, id++, shape.input_tokens.draw(random), shape.output_tokens.draw(random));
            request.adapter = shape.adapters[adapter];
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
