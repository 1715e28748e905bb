// What the benchmarks of `lorry bench` share: made-up prompts and requests, keeping an engine busy with them, repeated runs, and the
// quantiles of what they measure.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/text/grammar.h"

namespace lorry::ops {

// Pseudo-random tokens; the same number gives the same tokens.
std::vector<kernels::TokenId> made_up_prompt(const engine::ModelConfig& config, std::uint64_t number, std::int64_t tokens);

// A request that draws the most likely token each time, `output_tokens` of them unless it ends earlier.
engine::Request greedy_request(engine::RequestId id, std::vector<kernels::TokenId> prompt, std::int64_t output_tokens);

// The grammar of answers that match a JSON schema. Throws std::runtime_error if it cannot be used.
std::shared_ptr<const engine::Grammar> compile_schema(const engine::GrammarCompiler& compiler, std::string schema);

// Calls Engine::step and waits for adapters if there was nothing to do. Throws std::runtime_error for a request that failed.
bool step_or_wait(engine::Engine& engine, engine::StepOutput& output);

// Keeps `window` requests in the engine until `next` has no more and all are done; calls `ended` for each that ends. Throws like
// step_or_wait().
void keep_full(engine::Engine& engine, std::size_t window, const std::function<std::optional<engine::Request>()>& next,
               const std::function<void(engine::Result&)>& ended);
// The same with these requests, in order.
void keep_full(engine::Engine& engine, std::size_t window, std::span<engine::Request> requests,
               const std::function<void(engine::Result&)>& ended);

// Counts runs of which the best one is used: at least `least` runs, and more until `time` is over.
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
// The least seconds of each way. The ways take turns, so that a busy machine slows down all of them.
std::vector<double> least_in_turn(Tries tries, std::size_t ways, const std::function<double(std::size_t way)>& run);

// Used so far by all threads of this process: what others on the machine do changes it less than the clock.
double processor_seconds();

// The smallest of the ascending values that `share` of them do not exceed.
double quantile(std::span<const double> ascending, double share);

}  // namespace lorry::ops
