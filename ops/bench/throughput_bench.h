// Many requests at once through an engine: what they take together, what each waits, and how much of the machine that uses. Called by
// `lorry bench throughput`.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/adapter_cache.h"
#include "ops/bench/limits.h"
#include "ops/engine_setup.h"
#include "schema/job.h"

namespace lorry::ops {

// Lengths whose logarithms are normally distributed, as those of what people write and of answers to it nearly are: most are short and a
// few very long.
struct LongTail {
    std::int64_t median = 0;
    std::int64_t p90 = 0;  // nine of ten are no longer
};

// From `low` to `high`: each as likely as the others, or in a long tail, of which one in a thousand is cut off at either end.
struct TokenRange {
    std::int64_t low = 0;
    std::int64_t high = 0;
    std::optional<LongTail> long_tail{};
    std::int64_t draw(std::mt19937_64& random) const;
};
// "128", "64:256" or "lognormal:128:512" (median and ninth decile), from 1 up.
std::optional<TokenRange> parse_token_range(std::string_view text);

struct ThroughputShape {
    std::int64_t requests = 0;
    TokenRange input_tokens{128, 128};
    TokenRange output_tokens{64, 64};
    std::int64_t shared_tokens = 0;  // at the start of every prompt
    // Requests take these adapters in turn; nullopt is the base model.
    std::vector<std::optional<engine::AdapterSource>> models{std::nullopt};
    std::optional<double> arrivals_per_second;  // on average, each at its own time; nullopt: all are there at once
    bool stream = false;
    schema::Sampling sampling{.temperature = 0.0};  // of each token
};

// The steps in which each sequence had one row, of those the ones with the most sequences.
struct DecodeSteps {
    std::uint64_t rows = 0;         // of each
    double context_tokens = 0.0;    // of all rows, on average over the steps
    std::vector<double> seconds{};  // ascending

    void add(std::uint64_t step_rows, std::uint64_t step_context_tokens, double step_seconds);
};

struct ThroughputResult {
    double seconds = 0.0;
    std::uint64_t steps = 0;
    std::uint64_t prompt_tokens = 0;  // computed
    std::uint64_t cached_tokens = 0;  // of prompts, taken from the prefix cache
    std::uint64_t drawn_tokens = 0;
    std::uint64_t preemptions = 0;
    std::uint64_t adapter_groups = 0;  // different adapters of each step, added up
    // What each step takes at least, but for two things that are counted in full: a layer with a sliding window attends to all that came
    // before it, and adapters work on all rows in the last layer too, where only those that sample go on behind the attention.
    std::vector<Work> matmul_steps;     // of the base: every weight in use once
    std::vector<Work> attention_steps;  // what its sequences keep of keys and values once
    std::vector<Work> adapter_steps;    // on top of the base
    DecodeSteps decode;
    double idle_seconds = 0.0;      // of a GPU between its steps
    std::uint64_t graph_steps = 0;  // of `steps`, that were launched as graphs
    // Of each request in seconds, ascending: from its arrival to its first token and to its end, and per token after the first.
    std::vector<double> first_token;
    std::vector<double> end;
    std::vector<double> per_token;
};

// `seed` makes the prompts, not their lengths: with another one nothing is found in the prefix cache.
ThroughputResult run_throughput(EngineSetup& setup, const ThroughputShape& shape, std::uint64_t seed);

}  // namespace lorry::ops
