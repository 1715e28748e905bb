// Makes prompts and requests, drives an engine with them, and computes quantiles.
#include "ops/bench/workload.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <random>
#include <stdexcept>
#include <utility>

namespace lorry::ops {

std::vector<kernels::TokenId> made_up_prompt(const engine::ModelConfig& config, std::uint64_t number, std::int64_t tokens) {
    std::mt19937_64 random(number);
    std::vector<kernels::TokenId> prompt;
    for (std::int64_t i = 0; i < tokens; ++i) {
        prompt.push_back(static_cast<kernels::TokenId>(random() % static_cast<std::uint64_t>(config.vocabulary)));
    }
    return prompt;
}

engine::Request greedy_request(engine::RequestId id, std::vector<kernels::TokenId> prompt, std::int64_t output_tokens) {
    engine::Request request{.id = id, .prompt = std::move(prompt)};
    request.drawing = engine::shared({.sampling = {.temperature = 0.0}});
    request.max_tokens = output_tokens;
    return request;
}

std::shared_ptr<const engine::Grammar> compile_schema(const engine::GrammarCompiler& compiler, std::string schema) {
    auto grammar = compiler.compile({.text = std::move(schema)});
    if (!grammar) throw std::runtime_error("the schema cannot be used: " + grammar.error());
    return *std::move(grammar);
}

bool step_or_wait(engine::Engine& engine, engine::StepOutput& output) {
    const bool stepped = engine.step(output);
    if (!stepped) engine.wait_for_adapters(std::chrono::milliseconds(100));
    for (const engine::Result& done : output.results) {
        if (done.error) throw std::runtime_error("a request failed: " + done.error->message);
    }
    return stepped;
}

void keep_full(engine::Engine& engine, std::size_t window, const std::function<std::optional<engine::Request>()>& next,
               const std::function<void(engine::Result&)>& ended) {
    engine::StepOutput output;
    std::size_t active = 0;
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
        step_or_wait(engine, output);
        for (engine::Result& done : output.results) {
            ended(done);
            --active;
        }
    }
}

void keep_full(engine::Engine& engine, std::size_t window, std::span<engine::Request> requests,
               const std::function<void(engine::Result&)>& ended) {
    std::size_t submitted = 0;
    const auto next = [&]() -> std::optional<engine::Request> {
        if (submitted == requests.size()) return std::nullopt;
        return std::move(requests[submitted++]);
    };
    keep_full(engine, window, next, ended);
}

bool Tries::another() {
    if (runs_ >= least_ && Clock::now() - begin_ > time_) return false;
    ++runs_;
    return true;
}

std::vector<double> least_in_turn(Tries tries, std::size_t ways, const std::function<double(std::size_t way)>& run) {
    std::vector<double> least(ways, std::numeric_limits<double>::max());
    while (tries.another()) {
        for (std::size_t way = 0; way < ways; ++way) least[way] = std::min(least[way], run(way));
    }
    return least;
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double quantile(std::span<const double> ascending, double share) {
    CHECK(!ascending.empty(), "a quantile is one of the values");
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(ascending.size())));
    return ascending[std::clamp<std::size_t>(rank, 1, ascending.size()) - 1];
}

}  // namespace lorry::ops
