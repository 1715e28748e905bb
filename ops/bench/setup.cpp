// Declares the shared flags and writes the folders that they ask for.
#include "ops/bench/setup.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include <fmt/format.h>

#include "ops/adapter_folders.h"
#include "ops/bench/random_model.h"
#include "ops/command.h"
#include "ops/flag_checks.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

// Writing thousands of distinct files would take longer than a benchmark, so adapters share the weights of a few.
constexpr std::int64_t different_weights = 4;  // per rank

TokenRange token_range(const char* flag, const std::string& text) {
    const auto range = parse_token_range(text);
    if (!range)
        throw UsageError(fmt::format("{} {}: use a number from 1, LOW:HIGH, or lognormal:MEDIAN:P90 with P90 above MEDIAN", flag, text));
    return *range;
}

}  // namespace

void add_count(CLI::App& app, const char* flag, std::int64_t& value, const char* help) {
    app.add_option(flag, value, help)->check(whole_number_from(1))->capture_default_str();
}

void make_up_model(const RandomModel& model, const std::filesystem::path& folder, Settings& settings) {
    if (!settings.model.empty()) throw UsageError("give --model or --random-weights, not both");
    settings.model = (folder / model.name).string();
    std::cerr << fmt::format("writing {} of random weights to {} …\n", show_bytes(static_cast<std::size_t>(random_model_bytes(model))),
                             folder.string());
    write_random_model(model, settings.model);
}

void check_context(EngineSetup& setup, std::int64_t tokens) {
    const std::int64_t context = setup.engine().context_max();
    if (tokens <= context) return;
    throw UsageError(fmt::format("{} can hold {} tokens per sequence, but {} were requested: request fewer, or raise --kv-memory",
                                 setup.reply().base_name, context, tokens));
}

std::vector<engine::AdapterSource> all_adapters(const Settings& settings, const engine::ModelConfig& config) {
    const engine::ModelTexts texts(settings.model);
    const AdapterFolders folders(settings.adapters, base_name_of(settings), config, texts);
    std::vector<engine::AdapterSource> adapters;
    for (const auto& [name, why] : folders.left_out()) throw UsageError(fmt::format("adapter {} cannot be used: {}", name, why));
    for (const std::string& name : folders.names()) {
        const consumer::ModelName found = folders.resolve(name, {});
        if (found.kind != consumer::ModelName::Kind::adapter)
            throw UsageError(fmt::format("adapter {} cannot be used: {}", name, found.refusal));
        // Prompts are made of the base's tokens.
        if (found.vocabulary && *found.vocabulary < config.vocabulary)
            throw UsageError(fmt::format("adapter {} has fewer tokens than the base model; measure without it", name));
        adapters.push_back({found.hash, found.folder, found.vocabulary});
    }
    if (adapters.empty()) throw UsageError(fmt::format("--adapters {}: the folder has no adapters", settings.adapters));
    return adapters;
}

schema::Json circumstances_json(const Circumstances& circumstances) {
    return schema::Json::object({{"device", circumstances.device}, {"model", circumstances.model}, {"weights", circumstances.weights}});
}

schema::Json circumstances_json(const EngineSetup& setup) {
    schema::Json json = circumstances_json({.device = setup.device().name, .model = setup.reply().base_name, .weights = setup.storage()});
    if (const kernels::DeviceInfo device = setup.device(); !device.matmuls.empty()) {
        json.set("matmuls", device.matmuls);
        json.set("own_matmul", device.wants_library);
    }
    const engine::EngineOptions options = setup.options();
    json.set("max_batch", options.sequences_max);
    json.set("step_tokens", options.step_rows_max);
    json.set("prefix_cache", options.prefix_cache);
    return json;
}

void MadeUp::declare(CLI::App& app) {
    app.add_option("--input-tokens", input_tokens_,
                   "tokens of each prompt: a number; LOW:HIGH for a range; or lognormal:MEDIAN:P90, where most are short, one in ten is "
                   "longer than P90, and lengths rarer than one in a thousand are cut off. Every run has the same lengths")
        ->capture_default_str();
    app.add_option("--output-tokens", output_tokens_, "tokens that each request draws, in the same form")->capture_default_str();
    declare_weights(app);
}

void MadeUp::declare_model(CLI::App& app) {
    CLI::Option* const random_weights =
        app.add_option("--random-weights", random_weights_, "instead of --model: a model of this shape with random weights")
            ->check(CLI::IsMember(random_model_names()));
    app.add_option("--layers", layers_, "layers of the random model (default: those of the shape)")
        ->check(CLI::Range(1, 1000))
        ->needs(random_weights);
    app.add_option("--tokenizer", tokenizer_, "folder with the tokenizer.json of the random model (default: made-up words)")
        ->check(CLI::ExistingDirectory)
        ->needs(random_weights);
}

void MadeUp::declare_weights(CLI::App& app) {
    declare_model(app);
    CLI::Option* const random_adapters =
        app.add_option("--random-adapters", random_adapters_, "instead of --adapters: this many adapters with random weights")
            ->check(whole_number_from(0))
            ->capture_default_str();
    app.add_option("--ranks", ranks_, "ranks of the random adapters, in turn")
        ->delimiter(',')
        ->check(CLI::Range(1, 512))
        ->needs(random_adapters)
        ->capture_default_str();
}

TokenRange MadeUp::input_tokens() const { return token_range("--input-tokens", input_tokens_); }
TokenRange MadeUp::output_tokens() const { return token_range("--output-tokens", output_tokens_); }

void MadeUp::describe(schema::Json& json) const {
    const auto range_json = [](const TokenRange& range) {
        if (!range.long_tail) return schema::Json::array({range.low, range.high});
        return schema::Json::object({{"lognormal_median", range.long_tail->median},
                                     {"lognormal_p90", range.long_tail->p90},
                                     {"low", range.low},
                                     {"high", range.high}});
    };
    json.set("input_tokens", range_json(input_tokens()));
    json.set("output_tokens", range_json(output_tokens()));
    describe_weights(json);
}

void MadeUp::describe_weights(schema::Json& json) const {
    if (random_adapters_ > 0) json.set("ranks", schema::Json::Array(ranks_.begin(), ranks_.end()));
}

bool MadeUp::has_adapters(const Settings& settings) const { return random_adapters_ > 0 || !settings.adapters.empty(); }

void MadeUp::write(Settings& settings, const std::filesystem::path& folder) const {
    if (!random_weights_.empty()) make_up_model({random_weights_, layers_, tokenizer_}, folder, settings);
    if (random_adapters_ == 0) return;
    if (!settings.adapters.empty()) throw UsageError("give --adapters or --random-adapters, not both");
    if (settings.model.empty()) throw UsageError("--random-adapters needs --model or --random-weights");
    settings.adapters = (folder / "adapters").string();
    write_random_adapters(settings.model, random_adapters_, different_weights * std::ssize(ranks_), ranks_, settings.adapters);
}

}  // namespace lorry::ops
