// What the subcommands of `lorry bench` share: flags, made-up models and adapters, and the description of what was measured. Called by the
// subcommands in this folder and in experiments/.
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

// Adds a flag that takes a number of at least 1.
void add_count(CLI::App& app, const char* flag, std::int64_t& value, const char* help);

// Writes a random model of this shape into `folder`, reports it on stderr, and sets it in the settings. Throws UsageError if they name a
// model already.
void make_up_model(const RandomModel& model, const std::filesystem::path& folder, Settings& settings);

// Throws UsageError unless a sequence can hold `tokens` tokens.
void check_context(EngineSetup& setup, std::int64_t tokens);

// All adapters in the folder that the settings name. Throws UsageError if one cannot be used or there are none.
std::vector<engine::AdapterSource> all_adapters(const Settings& settings, const engine::ModelConfig& config);

// What a benchmark's figures were measured with: the first members of its JSON after the provenance.
struct Circumstances {
    std::string device;
    std::string model;
    std::string weights;  // and of the KV cache, if it is narrower
};
schema::Json circumstances_json(const Circumstances& circumstances);
// The same for an engine, with its matmul kernels and options.
schema::Json circumstances_json(const EngineSetup& setup);

// The flags for made-up requests, models and adapters.
class MadeUp {
public:
    void declare(CLI::App& app);
    // Only those for models and adapters.
    void declare_weights(CLI::App& app);
    // Only those for models.
    void declare_model(CLI::App& app);
    // Both throw UsageError.
    TokenRange input_tokens() const;
    TokenRange output_tokens() const;
    // Adds the request lengths and the ranks of random adapters to `json`.
    void describe(schema::Json& json) const;
    // Adds only the ranks.
    void describe_weights(schema::Json& json) const;
    // True if requests use adapters, from a folder or random ones.
    bool has_adapters(const Settings& settings) const;
    // Writes the requested random model and adapters into `folder` and sets them in the settings. Throws UsageError.
    void write(Settings& settings, const std::filesystem::path& folder) const;

private:
    std::string input_tokens_ = "128";
    std::string output_tokens_ = "64";
    std::string random_weights_;
    std::optional<std::int64_t> layers_;
    std::string tokenizer_;
    std::int64_t random_adapters_ = 0;
    std::vector<std::int64_t> ranks_ = {16};
};

}  // namespace lorry::ops
