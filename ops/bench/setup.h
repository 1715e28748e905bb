// What the subcommands of `lorry bench` share between their flags and their runs: what is made up, and what an engine must hold. Called by
// command_bench_*.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/adapter_cache.h"
#include "ops/bench/random_model.h"
#include "ops/bench/throughput_bench.h"
#include "ops/engine_setup.h"
#include "schema/json.h"

namespace CLI {
class App;
}

namespace lorry::ops {

// A flag that takes a number from 1.
void add_count(CLI::App& app, const char* flag, std::int64_t& value, const char* help);

// Writes a random model of this shape into `folder`, says so to people, and names it in the settings. Throws UsageError when they name one
// already.
void make_up_model(const RandomModel& model, const std::filesystem::path& folder, Settings& settings);

// Throws UsageError unless one sequence can have so many tokens.
void check_context(EngineSetup& setup, std::int64_t tokens);

// All in the folder that the settings name. Throws UsageError for one that cannot be used, and where there are none.
std::vector<engine::AdapterSource> all_adapters(const Settings& settings, const engine::ModelConfig& config);

// What a benchmark's figures were measured with, for scripts: the first members of its JSON behind its provenance.
struct Circumstances {
    std::string device;
    std::string model;
    std::string weights;  // and KV cache, where it is narrower
};
schema::Json circumstances_json(const Circumstances& circumstances);
// These, what multiplies, and the options of an engine.
schema::Json circumstances_json(const EngineSetup& setup);

// The flags of what requests, model and adapters are made up of.
class MadeUp {
public:
    void declare(CLI::App& app);
    // Those of model and adapters alone.
    void declare_weights(CLI::App& app);
    // Throw UsageError.
    TokenRange input_tokens() const;
    TokenRange output_tokens() const;
    // Sets what the flags say of requests, and the ranks of random adapters.
    void describe(schema::Json& json) const;
    // The latter alone.
    void describe_weights(schema::Json& json) const;
    // Whether requests have adapters, of a folder or random ones.
    bool has_adapters(const Settings& settings) const;
    // Writes the model and the adapters that were asked for as random ones into `folder`, and names them in the settings. Throws
    // UsageError.
    void write(Settings& settings, const std::filesystem::path& folder) const;

private:
    std::string input_tokens_ = "128";
    std::string output_tokens_ = "64";
    std::string random_weights_;
    std::optional<std::int64_t> layers_;
    std::int64_t random_adapters_ = 0;
    std::vector<std::int64_t> ranks_ = {16};
};

}  // namespace lorry::ops
