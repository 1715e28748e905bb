// What the benchmarks of `lorry bench` share: made-up prompts, requests and how an engine is kept busy with them, how often they run, and
// the quantiles of what they measure.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace lorry::ops {

// Pseudo-random tokens, the same for the same number.
std::vector<kernels::TokenId> made_up_prompt(const engine::ModelConfig& config, std::uint64_t number, std::int64_t tokens);

// Draws so many tokens unless it ends before, each the likeliest.
engine::Request greedy_request(engine::RequestId id, std::vector<kernels::TokenId> prompt, std::int64_t output_tokens);

// Engine::step; if there was nothing to do, waits for adapters. Throws std::runtime_error for a request that failed.
bool step_or_wait(engine::Engine& engine, engine::StepOutput& output);

// Keeps `window` requests with the engine until `next` has no more and all are done; tells of each that ends. Throws as step_or_wait does.
void keep_full(engine::Engine& engine, std::size_t window, const std::function<std::optional<engine::Request>()>& next,
               const std::function<void(engine::Result&)>& ended);
// The same with these, in their order.
void keep_full(engine::Engine& engine, std::size_t window, std::span<engine::Request> requests,
               const std::function<void(engine::Result&)>& ended);

// Of so many runs the best one counts: `least`, and more until that time is over.
class Tries {
public:
    Tries(int least, std::chrono::duration<double> time) : least_(least), time_(time) {}
    bool another();

private:
    using Clock = std::chrono::steady_clock;

    int least_;
    std::chrono::duration<double> time_;
    Clock::time_point begin_ = Clock::now();
    int runs_ = 0;
};
// The least seconds of each of `ways`; in turn, so that a busy machine slows all of them down.
std::vector<double> least_in_turn(Tries tries, std::size_t ways, const std::function<double(std::size_t way)>& run);

// The least of the ascending values that `share` of them do not exceed.
double quantile(std::span<const double> ascending, double share);

}  // namespace lorry::ops
