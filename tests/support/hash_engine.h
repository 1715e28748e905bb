// An engine over the hash model (hash_model.h), with a pool of `blocks` blocks of 4 tokens.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "schema/check.h"
#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/hash_model.h"

namespace lorry::tests {

struct HashEngine {
    HashEngine(std::int64_t steps_queued, std::int64_t blocks, std::int64_t positions_max, const engine::EngineOptions& engine_options,
               const engine::Tokenizer& tokenizer = gpt2_tokenizer())
        : backend(make_hash_backend(steps_queued)), options(engine_options) {
        options.kv_bytes = static_cast<std::size_t>(blocks * hash_block_size);
        model = make_hash_model(positions_max, options.step_rows_max, options.sample_rows_max());
        engine = std::make_unique<engine::Engine>(*model, *backend, tokenizer, options);
    }

    // Runs until all requests are done.
    std::map<engine::RequestId, engine::Result> run() {
        std::map<engine::RequestId, engine::Result> results;
        while (engine->has_work()) {
            CHECK(engine->step(output), "an engine with work and no adapters always gets on");
            engine->check_integrity();
            for (engine::Result& result : output.results) {
                const engine::RequestId id = result.id;
                results.emplace(id, std::move(result));
            }
        }
        return results;
    }

    std::unique_ptr<kernels::Backend> backend;
    engine::EngineOptions options;
    std::unique_ptr<engine::Model> model;
    std::unique_ptr<engine::Engine> engine;
    engine::StepOutput output;
};

inline std::vector<engine::TokenId> prompt_of(std::int64_t length, std::int32_t seed) {
    std::vector<engine::TokenId> prompt;
    for (std::int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<engine::TokenId>((seed * 31 + i * 7) % hash_vocabulary));
    return prompt;
}

inline engine::Request request_of(engine::RequestId id, std::vector<engine::TokenId> prompt, std::int64_t max_tokens) {
    engine::Request request;
    request.id = id;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    return request;
}

// Counts steps, and compares each result with what the hash of its prompt says.
struct CheckedEngine : HashEngine {
    using HashEngine::HashEngine;
    void submit(engine::Request request) {
        expected[request.id] = hash_tokens(request.prompt, request.max_tokens);
        engine->submit(std::move(request));
    }
    void step() {
        ASSERT_TRUE(engine->step(output));
        engine->check_integrity();
        ++steps;
        for (const engine::Result& result : output.results) {
            EXPECT_EQ(result.tokens, expected.at(result.id)) << "request " << result.id;
            EXPECT_TRUE(ended.emplace(result.id, steps).second) << "request " << result.id << " ended twice";
        }
    }
    void run_to_end() {
        while (engine->has_work()) step();
        EXPECT_EQ(ended.size(), expected.size());
    }

    std::int64_t steps = 0;
    std::map<engine::RequestId, std::vector<engine::TokenId>> expected;
    std::map<engine::RequestId, std::int64_t> ended;  // the step in which a request ended
};

}  // namespace lorry::tests
