// Runs many requests at once through an engine and measures their throughput, what each waits, and how much of the machine they use. Called
// by `lorry bench throughput` and `lorry bench course`.
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

// Log-normally distributed lengths, close to those of what people write and of answers to it: most are short and a few very long.
struct LongTail {
    std::int64_t median = 0;
    std::int64_t p90 = 0;  // nine of ten are at most this long
};

// Lengths from `low` to `high`: uniformly distributed, or with a long tail, of which one in a thousand is cut off at either end.
struct TokenRange {
    std::int64_t low = 0;
    std::int64_t high = 0;
    std::optional<LongTail> long_tail{};
    std::int64_t draw(std::mt19937_64& random) const;
};
// Parses "128", "64:256" or "lognormal:128:512" (median and ninth decile), with numbers from 1.
std::optional<TokenRange> parse_token_range(std::string_view text);

struct ThroughputShape {
    std::int64_t requests = 0;
    TokenRange input_tokens{128, 128};
    TokenRange output_tokens{64, 64};
    std::int64_t shared_tokens = 0;  // shared prefix of all prompts
    // Requests use these adapters in turn; nullopt is the base model.
    std::vector<std::optional<engine::AdapterSource>> models{std::nullopt};
    std::optional<double> arrivals_per_second;  // on average, at random times; nullopt: all arrive at once
    bool stream = false;
    schema::Sampling sampling{.temperature = 0.0};  // for each token
};

// The steps in which each sequence had one row; only those with the most sequences are kept.
struct DecodeSteps {
    std::uint64_t rows = 0;         // of each
    double context_tokens = 0.0;    // of all rows, averaged over the steps
    std::vector<double> seconds{};  // ascending

    void add(std::uint64_t step_rows, std::uint64_t step_context_tokens, double step_seconds);
};

struct ThroughputResult {
    double seconds = 0.0;
    std::uint64_t steps = 0;
    std::uint64_t prompt_tokens = 0;  // prompt tokens that were computed
    std::uint64_t cached_tokens = 0;  // prompt tokens taken from the prefix cache
    std::uint64_t drawn_tokens = 0;
    std::uint64_t preemptions = 0;
    std::uint64_t adapter_groups = 0;  // number of different adapters in each step, summed
    // The minimum work of each step, with two exceptions that are counted in full: a layer with a sliding window counts as attending to
    // everything before it, and adapters in the last layer count for all rows, though only rows that sample continue after attention.
    std::vector<Work> matmul_steps;     // the base: every weight in use, once
    std::vector<Work> attention_steps;  // the keys and values of its sequences, once
    std::vector<Work> adapter_steps;    // in addition to the base
    DecodeSteps decode;
    double idle_seconds = 0.0;      // of a GPU, between its steps
    std::uint64_t graph_steps = 0;  // steps that were launched as graphs
    // Per request in seconds, ascending: from its arrival to its first token and to its end, and per token after the first.
    std::vector<double> first_token;
    std::vector<double> end;
    std::vector<double> per_token;
};

// Whether `one` beats `other`, a run of the same requests: it decoded more sequences at once, or as many and was faster. Where adapters
// were still being loaded, their sequences began later, and the steps cannot be compared.
bool is_better(const ThroughputResult& one, const ThroughputResult& other);

// `seed` determines the prompts but not their lengths: with another seed, nothing is found in the prefix cache.
ThroughputResult run_throughput(EngineSetup& setup, const ThroughputShape& shape, std::uint64_t seed);

}  // namespace lorry::ops
