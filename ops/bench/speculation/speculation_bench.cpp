// Makes up answers, and lets a backend draw them.
#include "ops/bench/speculation/speculation_bench.h"

#include <algorithm>
#include <random>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "ops/bench/workload.h"
#include "ops/bench/wrapped_backend.h"

namespace lorry::ops {
namespace {

using kernels::TokenId;

class ScriptedBackend final : public WrappedBackend {
public:
    ScriptedBackend(std::unique_ptr<kernels::Backend> backend, const Script& script)
        : WrappedBackend(std::move(backend)), script_(script) {}

private:
    void do_run(const kernels::Op& op) override {
        backend().run(op);
        if (const auto* const sampled = std::get_if<const kernels::SampleArgs*>(&op)) script_.apply(**sampled);
    }

    const Script& script_;
};

// Spans of the prompt and random tokens in turn.
std::vector<TokenId> answer_to(const std::vector<TokenId>& prompt, const engine::ModelConfig& config, const SpeculationShape& shape,
                               std::mt19937_64& random) {
    const double own_span = static_cast<double>(shape.span) * (1.0 - shape.copied) / std::max(shape.copied, 1e-6);
    const auto around = [&](double mean) { return std::llround(mean * std::uniform_real_distribution(0.5, 1.5)(random)); };
    std::vector<TokenId> answer;
    while (std::ssize(answer) < shape.output_tokens) {
        const auto own = std::min<std::int64_t>(around(own_span), shape.output_tokens);
        for (std::int64_t i = 0; i < own; ++i)
            answer.push_back(static_cast<TokenId>(random() % static_cast<std::uint64_t>(config.vocabulary)));
        const std::size_t count =
            shape.copied == 0.0 ? 0 : std::min(static_cast<std::size_t>(around(static_cast<double>(shape.span))), prompt.size());
        const auto from = prompt.begin() + static_cast<std::ptrdiff_t>(random() % (prompt.size() - count + 1));
        answer.insert(answer.end(), from, from + static_cast<std::ptrdiff_t>(count));
    }
    answer.resize(static_cast<std::size_t>(shape.output_tokens));
    return answer;
}

}  // namespace

std::unique_ptr<kernels::Backend> Script::watch(std::unique_ptr<kernels::Backend> backend) {
    return std::make_unique<ScriptedBackend>(std::move(backend), *this);
}

void Script::set(std::uint64_t seed, std::int64_t position, std::vector<TokenId> answer) {
    answers_[seed] = {.position = position, .tokens = std::move(answer)};
}

void Script::apply(const kernels::SampleArgs& args) const {
    for (std::size_t row = 0; row < args.rows.size(); ++row) {
        const Answer& answer = answers_.at(args.rows[row].seed);
        args.results[row].token =
            answer.tokens[static_cast<std::size_t>(args.rows[row].position) - static_cast<std::size_t>(answer.position)];
    }
}

double SpeculationResult::median_gain() const {
    std::vector<double> gains;
    for (std::size_t i = 0; i < plain.seconds.size(); ++i) gains.push_back(plain.seconds[i] / guessed.seconds[i]);
    std::ranges::sort(gains);
    return quantile(gains, 0.5);
}

std::vector<SpeculationResult> run_speculation(EngineSetup& setup, const SpeculationShape& shape, Script& script) {
    const engine::ModelConfig& config = setup.model().config();
    std::vector<SpeculationResult> results;
    for (const std::int64_t batch : shape.batches) {
        SpeculationResult& result = results.emplace_back(SpeculationResult{.batch = batch});
        std::mt19937_64 random(7);
        std::vector<engine::Request> requests;
        for (std::int64_t i = 0; i < std::max<std::int64_t>(8, 4 * batch); ++i) {
            const auto id = static_cast<std::uint64_t>(i);
            std::vector<TokenId> prompt = made_up_prompt(config, id, shape.input_tokens.draw(random));
            script.set(id, std::ssize(prompt), answer_to(prompt, config, shape, random));
            requests.push_back(greedy_request(id, std::move(prompt), shape.output_tokens));
            requests.back().seed = id;
        }
        result.tokens = static_cast<std::uint64_t>(std::ssize(requests) * shape.output_tokens);
        const auto run = [&](SpeculationResult::Way& way, std::int64_t drafts_max) {
            engine::EngineOptions options = setup.options();
            options.drafts_max = drafts_max;
            options.draft_chance_least = shape.chance_least;
            engine::Engine& engine = setup.replace_engine(options);
            std::vector<engine::Request> copies = requests;
            const auto begin = engine::Clock::now();
            const double processor_begin = processor_seconds();
            keep_full(engine, static_cast<std::size_t>(batch), copies, [](const engine::Result&) {});
            way.seconds.push_back(std::chrono::duration<double>(engine::Clock::now() - begin).count());
            way.processor_seconds += processor_seconds() - processor_begin;
            way.steps = engine.stats().steps;
        };
        for (std::int64_t i = 0; i < shape.repeat; ++i) {
            run(result.plain, 0);
            run(result.guessed, setup.options().drafts_max);
        }
        result.drafted_tokens = setup.engine().stats().drafted_tokens;
        result.accepted_tokens = setup.engine().stats().accepted_tokens;
    }
    return results;
}

}  // namespace lorry::ops
