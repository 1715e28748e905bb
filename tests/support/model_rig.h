// A golden checkpoint in an engine of its own with real kernels, and results as text, for tests that compare answers bit for bit.
#pragma once

#include <bit>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/support/engine_rig.h"
#include "tests/support/golden_model.h"
#include "tests/support/gpt2_tokenizer.h"

namespace lorry::tests {

struct ModelRig {
    // checkpoint: the name of a golden checkpoint, or a folder.
    ModelRig(const Stored& stored, const std::filesystem::path& checkpoint, engine::EngineOptions options, std::int64_t kv_tokens = 3200,
             std::size_t adapter_bytes = std::size_t{64} << 20) {
        backend = make_backend(stored.weights, stored.quantize, stored.kv);
        model =
            engine::Model::load(golden_folder() / "checkpoints" / checkpoint, *backend, options.step_rows_max, options.sample_rows_max());
        options.kv_bytes = static_cast<std::size_t>(kv_tokens / backend->block_size()) * backend->kv_block_bytes(model->kv_shape());
        options.adapter_bytes = adapter_bytes;
        engine = std::make_unique<engine::Engine>(*model, *backend, gpt2_tokenizer(), options);
    }
    std::map<engine::RequestId, engine::Result> run(const std::vector<engine::Request>& requests) const {
        return run_all(*engine, requests);
    }
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<engine::Model> model;
    std::unique_ptr<engine::Engine> engine;
};

// All of a result as text, with floats as their bits.
inline std::string told(const engine::Result& result) {
    std::string text = result.error ? "error " + result.error->message : result.text + " " + engine::name_of(result.finish);
    const auto add = [&](float value) { text += " " + std::to_string(std::bit_cast<std::uint32_t>(value)); };
    for (const engine::TokenId token : result.tokens) text += " " + std::to_string(token);
    for (const auto* entries : {&result.logprobs, &result.scores}) {
        text += " |";
        for (const engine::TokenLogprobs& entry : *entries) {
            add(entry.logprob);
            text += "@" + std::to_string(entry.text_begin) + "#" + std::to_string(entry.rank);
            for (const auto& top : entry.top) {
                text += ":" + std::to_string(top.token);
                add(top.logprob);
            }
        }
    }
    text += " |";
    for (const float target : result.final_targets) add(target);
    return text;
}

inline engine::AdapterSource adapter_named(const std::string& name, const engine::ModelConfig& config) {
    const auto folder = golden_folder() / "adapters" / name;
    const auto info = engine::inspect_adapter(folder, config);
    return {.hash = info->hash, .folder = folder, .vocabulary = info->vocabulary};
}

}  // namespace lorry::tests
