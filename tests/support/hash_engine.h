// An engine over the hash model (hash_model.h), with a pool of `blocks` blocks of 4 tokens.
#pragma once

#include <memory>

#include "engine/engine.h"
#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/hash_model.h"

namespace lorry::tests {

struct HashEngine {
    HashEngine(std::int64_t steps_queued, std::int64_t blocks, std::int64_t positions_max, const engine::EngineOptions& engine_options)
        : backend(make_hash_backend(steps_queued)), options(engine_options) {
        options.kv_bytes = static_cast<std::size_t>(blocks * hash_block_size);
        model = make_hash_model(positions_max, options.step_rows_max, options.sample_rows_max());
        engine = std::make_unique<engine::Engine>(*model, *backend, gpt2_tokenizer(), options);
    }

    std::unique_ptr<kernels::Backend> backend;
    engine::EngineOptions options;
    std::unique_ptr<engine::Model> model;
    std::unique_ptr<engine::Engine> engine;
    engine::StepOutput output;
};

}  // namespace lorry::tests
