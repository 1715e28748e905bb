// Runs requests whose answers copy from their prompts, with guesses of the next tokens and without: what speculation gains where it can,
// and costs where it cannot. A made-up answer takes the place of what the model draws, so that it copies as much as asked for; the model's
// work is done all the same. Called by `lorry bench speculation`, on the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ops/bench/throughput_bench.h"
#include "ops/engine_setup.h"

namespace lorry::ops {

struct SpeculationShape {
    std::vector<std::int64_t> batches{1, 64};  // requests at a time; each runs four times as many, and at least eight
    TokenRange input_tokens{256, 256};
    std::int64_t output_tokens = 128;
    double copied = 0.8;                 // the share of an answer's tokens that are copied; the others are random
    std::int64_t span = 16;              // tokens that are copied together, on average
    std::int64_t repeat = 5;             // rounds, in which both ways take turns
    std::optional<double> chance_least;  // as EngineOptions::draft_chance_least
};

// The made-up answers, by a request's seed.
class Script {
public:
    // The backend that draws them. This outlives it.
    std::unique_ptr<kernels::Backend> watch(std::unique_ptr<kernels::Backend> backend);
    // Begins after the prompt, at this position.
    void set(std::uint64_t seed, std::int64_t position, std::vector<kernels::TokenId> answer);
    // Replaces what was drawn.
    void apply(const kernels::SampleArgs& args) const;

private:
    struct Answer {
        std::int64_t position = 0;
        std::vector<kernels::TokenId> tokens;
    };
    std::unordered_map<std::uint64_t, Answer> answers_;
};

struct SpeculationResult {
    // One way, with guesses or without.
    struct Way {
        std::vector<double> seconds;     // [repeat]
        double processor_seconds = 0.0;  // of all rounds, all threads
        std::uint64_t steps = 0;         // of one round
    };
    std::int64_t batch = 0;
    std::uint64_t tokens = 0;  // of all answers
    Way plain;
    Way guessed;
    std::uint64_t drafted_tokens = 0;  // of one round
    std::uint64_t accepted_tokens = 0;

    // How many times the throughput without guesses: the median of the rounds; and per second of the processor, which others that use the
    // machine change less. With several threads, waiting for each other counts.
    double median_gain() const;
    double processor_gain() const { return plain.processor_seconds / guessed.processor_seconds; }
};

// The setup's backend comes from script.watch().
std::vector<SpeculationResult> run_speculation(EngineSetup& setup, const SpeculationShape& shape, Script& script);

}  // namespace lorry::ops
