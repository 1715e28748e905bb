// The engine computes texts for encoders and heads: whole, packed, beside adapters and requests that draw, always with the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include "engine/engine.h"
#include "tests/support/engine_rig.h"
#include "tests/support/golden_model.h"
#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/seeded_model.h"
#include "tests/support/temp_folder.h"

namespace lorry::engine {
namespace {

using kernels::Format;
using tests::SeededFolder;
using tests::Stored;

// An engine over a seeded encoder, or over a checkpoint with weights.
struct Rig {
    explicit Rig(const std::string& name, EngineOptions options = {}, const Stored& stored = {},
                 std::optional<PoolingMode> pooling = std::nullopt) {
        backend = tests::make_backend(stored.weights, stored.quantize);
        const auto seeded = tests::golden_folder() / "encoders" / name;
        std::filesystem::path folder = tests::golden_folder() / "checkpoints" / name;
        if (std::filesystem::exists(seeded / "tensors.json")) folder = weights.emplace(seeded, "model.safetensors").path();
        model = Model::load(folder, *backend, options.step_rows_max, options.sample_rows_max(), std::numeric_limits<std::int64_t>::max(),
                            pooling);
        options.kv_bytes = 200 * backend->kv_block_bytes(model->kv_shape());
        options.adapter_bytes = std::size_t{64} << 20;
        engine = std::make_unique<Engine>(*model, *backend, tests::gpt2_tokenizer(), options);
    }
    std::map<RequestId, Result> run(const std::vector<Request>& requests) const { return tests::run_all(*engine, requests); }
    std::vector<TokenId> text(std::int64_t length, std::uint32_t seed) const {
        std::mt19937 random(seed);
        std::vector<TokenId> tokens;
        const auto vocabulary = static_cast<std::uint32_t>(model->config().vocabulary);
        for (std::int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<TokenId>(3 + random() % (vocabulary - 3)));
        return tokens;
    }
    Request request(RequestId id, PoolingTask task, std::int64_t length) const {
        Request request;
        request.id = id;
        request.prompt = text(length, static_cast<std::uint32_t>(id));
        request.pooling = task;
        return request;
    }

    std::optional<SeededFolder> weights;
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<Model> model;
    std::unique_ptr<Engine> engine;
};

AdapterSource source_of(const SeededFolder& folder, const Rig& rig) {
    const auto info = inspect_adapter(folder.path(), rig.model->config());
    CHECK(info, info ? std::string() : info.error());
    return {.hash = info->hash, .folder = folder.path()};
}

std::filesystem::path adapter_goldens(const std::string& name) { return tests::golden_folder() / "encoder_adapters" / name; }

struct Kind {
    std::string model;
    Stored stored;
};
class Pooling : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Formats, Pooling,
                         testing::Values(Kind{"bert", {}}, Kind{"bert", {Format::bfloat16}},
                                         Kind{"bert", {Format::bfloat16, kernels::Quantization::int8}}, Kind{"mpnet", {Format::bfloat16}},
                                         Kind{"modernbert", {Format::bfloat16}},
                                         Kind{"modernbert", {Format::bfloat16, kernels::Quantization::int8}}),
                         [](const auto& kind) { return kind.param.model + "_" + kind.param.stored.name(); });

// Pins: a text's bits depend on nothing but the text, in every weight format; steps hold whole texts, and no more rows than they may.
TEST_P(Pooling, GivesEachTextTheSameBitsInAnyBatch) {
    Rig rig(GetParam().model, {.sequences_max = 16, .step_rows_max = 96}, GetParam().stored);
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 40; ++id)
        requests.push_back(rig.request(id, PoolingTask::embed, 1 + static_cast<std::int64_t>(id * 7 % 60)));
    for (Request& request : requests) {
        if (rig.model->config().token_types < 2 || request.id % 3 != 0) continue;
        request.token_types.assign(request.prompt.size(), 0);
        std::fill(request.token_types.begin() + std::ssize(request.prompt) / 2, request.token_types.end(), 1);
    }
    const auto together = rig.run(requests);
    EXPECT_LT(rig.engine->stats().steps, 30U) << "texts share steps";
    std::ranges::reverse(requests);
    const auto reversed = rig.run(requests);
    for (const Request& request : requests) {
        const auto alone = rig.run({request});
        ASSERT_FALSE(alone.at(request.id).error);
        EXPECT_EQ(alone.at(request.id).pooled.size(), static_cast<std::size_t>(rig.model->config().hidden));
        EXPECT_EQ(together.at(request.id).pooled, alone.at(request.id).pooled) << request.id;
        EXPECT_EQ(reversed.at(request.id).pooled, alone.at(request.id).pooled) << request.id;
    }
}

// Pins: adapters with heads of different sizes run in one batch with the base, and each text has the labels of its head.
TEST(PoolingEngine, RunsAdaptersWithTheirOwnHeadsInOneBatch) {
    Rig rig("bert", {.sequences_max = 32, .step_rows_max = 256});
    std::deque<SeededFolder> folders;
    for (const char* name : {"bert-sentiment", "bert-topics", "bert-ner", "bert-embed"})
        folders.emplace_back(adapter_goldens(name), "adapter_model.safetensors");
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 30; ++id) {
        const std::size_t which = id % 5;
        const PoolingTask tasks[] = {PoolingTask::classify, PoolingTask::classify, PoolingTask::token_classify, PoolingTask::embed};
        Request request = rig.request(id, which < 4 ? tasks[which] : PoolingTask::embed, 1 + static_cast<std::int64_t>(id % 20));
        if (which < 4) request.adapter = source_of(folders[which], rig);
        requests.push_back(std::move(request));
    }
    const auto together = rig.run(requests);
    for (const Request& request : requests) {
        const Result& result = together.at(request.id);
        ASSERT_FALSE(result.error) << result.error->message;
        const std::size_t labels[] = {2, 5, 5, 36, 36};
        const std::size_t which = request.id % 5;
        EXPECT_EQ(result.pooled.size(), labels[which] * (which == 2 ? request.prompt.size() : 1));
        EXPECT_EQ(result.labels != nullptr, which < 3);
        if (which < 3) {
            EXPECT_EQ(result.labels->names.size(), labels[which]);
        }
        EXPECT_EQ(rig.run({request}).at(request.id).pooled, result.pooled) << request.id;
    }
}

// Pins: a causal model draws and embeds in the same steps, and neither changes the other.
TEST(PoolingEngine, DrawsAndEmbedsInOneBatch) {
    Rig rig("llama-mha", {.sequences_max = 16, .step_rows_max = 48}, {}, PoolingMode::last);
    const SeededFolder folder(adapter_goldens("llama-causal-classify"), "adapter_model.safetensors");
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 24; ++id) {
        Request request = rig.request(id, PoolingTask::embed, 5 + static_cast<std::int64_t>(id * 5 % 70));
        if (id % 3 == 1) {
            request.pooling.reset();
            request.max_tokens = 6;
        } else if (id % 3 == 2) {
            request.pooling = PoolingTask::classify;
            request.adapter = source_of(folder, rig);
        }
        requests.push_back(std::move(request));
    }
    const auto together = rig.run(requests);
    for (const Request& request : requests) {
        const Result& result = together.at(request.id);
        ASSERT_FALSE(result.error) << result.error->message;
        const Result alone = rig.run({request}).at(request.id);
        EXPECT_EQ(alone.pooled, result.pooled) << request.id;
        EXPECT_EQ(alone.tokens, result.tokens) << request.id;
        EXPECT_EQ(result.pooled.empty(), !request.pooling);
    }
}

// A golden checkpoint with a LogitScore, as sentence-transformers writes it.
struct ScoringFolder {
    ScoringFolder(const std::string& checkpoint, const std::string& score) {
        std::filesystem::copy(tests::golden_folder() / "checkpoints" / checkpoint, folder.path(), std::filesystem::copy_options::recursive);
        tests::write_text(folder / "modules.json", R"([{"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""},)"
                                                   R"({"type": "x.LogitScore", "path": "1_LogitScore"}])");
        std::filesystem::create_directories(folder / "1_LogitScore");
        tests::write_text(folder / "1_LogitScore/config.json", score);
    }
    tests::TempFolder folder;
};

// Pins: the score of a model that answers "yes" or "no" is the difference of transformers' logits, with and without adapters, and does not
// depend on the batch.
TEST(PoolingEngine, ScoresByTheLogitsOfTokens) {
    constexpr std::size_t yes = 7;
    constexpr std::size_t no = 5;
    const auto compare = [&](Rig& rig, const std::filesystem::path& goldens, const std::optional<AdapterSource>& adapter,
                             bool has_negative) {
        const tests::Golden golden = tests::read_golden(goldens);
        std::vector<Request> requests;
        for (const tests::GoldenCase& one : golden.cases) {
            Request request = rig.request(requests.size(), PoolingTask::classify, 1);
            request.prompt = one.prompt;
            request.adapter = adapter;
            requests.push_back(std::move(request));
        }
        const auto results = rig.run(requests);
        for (std::size_t i = 0; i < golden.cases.size(); ++i) {
            const auto last = std::span(golden.cases[i].logits).last(static_cast<std::size_t>(golden.vocabulary));
            const Result& result = results.at(i);
            ASSERT_FALSE(result.error) << result.error->message;
            ASSERT_EQ(result.pooled.size(), 1U);
            EXPECT_NEAR(result.pooled.front(), last[yes] - (has_negative ? last[no] : 0.0F), 2e-4F) << goldens << " " << i;
            EXPECT_EQ(rig.run({requests[i]}).at(i).pooled, result.pooled);
        }
    };
    const auto checkpoint = [](const char* name) { return tests::golden_folder() / "checkpoints" / name; };
    const auto adapter = [](const char* name) { return tests::golden_folder() / "adapters" / name; };
    const auto source = [](const std::filesystem::path& folder, const Rig& rig) {
        return AdapterSource{.hash = inspect_adapter(folder, rig.model->config())->hash, .folder = folder};
    };
    const char* const both = R"({"true_token_id": 7, "false_token_id": 5})";
    const EngineOptions options{.sequences_max = 8, .step_rows_max = 64};
    for (const char* name : {"qwen3", "qwen3-tied-bias"}) {
        const ScoringFolder folder(name, both);
        Rig rig(folder.folder.path(), options);
        compare(rig, checkpoint(name), std::nullopt, true);
        if (name == std::string_view("qwen3")) compare(rig, adapter("qwen3-plain"), source(adapter("qwen3-plain"), rig), true);
        Request drawing = rig.request(99, PoolingTask::classify, 5);
        drawing.pooling.reset();
        drawing.max_tokens = 2;
        EXPECT_EQ(rig.run({drawing}).at(99).tokens.size(), 2U) << "it still generates text";
    }
    const ScoringFolder one("qwen2", R"({"true_token_id": 7, "false_token_id": null})");
    Rig rig(one.folder.path(), options);
    compare(rig, checkpoint("qwen2"), std::nullopt, false);
    Request request = rig.request(1, PoolingTask::classify, 5);
    request.adapter = source(adapter("qwen2-tied-lm-head"), rig);
    const Result refused = rig.run({request}).at(1);
    ASSERT_TRUE(refused.error) << "its head is not the one that the score was made of";
    EXPECT_EQ(refused.error->code, schema::ErrorCode::unsupported_by_model);
}

// Pins: /score with a reranker's adapter over a bare encoder was the cosine of the base's vectors.
TEST(PoolingEngine, RefusesEmbeddingsOfAnAdapterThatClassifies) {
    Rig rig("bert", {.sequences_max = 8, .step_rows_max = 64});
    const SeededFolder folder(adapter_goldens("bert-rerank"), "adapter_model.safetensors");
    Request request = rig.request(1, PoolingTask::embed, 9);
    request.adapter = source_of(folder, rig);
    const Result result = rig.run({request}).at(1);
    ASSERT_TRUE(result.error);
    EXPECT_EQ(result.error->code, schema::ErrorCode::unsupported_by_model);
}

TEST(PoolingEngine, FillsMasks) {
    Rig rig("bert-mlm", {.sequences_max = 8, .step_rows_max = 128});
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 6; ++id) {
        Request request = rig.request(id, PoolingTask::fill_mask, 20);
        request.mask_positions = {static_cast<std::int64_t>(id), 15};
        request.score_top = 3;
        requests.push_back(std::move(request));
    }
    const auto results = rig.run(requests);
    for (const Request& request : requests) {
        const Result& result = results.at(request.id);
        ASSERT_EQ(result.fills.size(), 2U);
        for (const TokenLogprobs& fill : result.fills) {
            ASSERT_EQ(fill.top.size(), 3U);
            EXPECT_GE(fill.top[0].logprob, fill.top[1].logprob);
            EXPECT_LT(fill.top[0].logprob, 0.0F);
        }
        const Result alone = rig.run({request}).at(request.id);
        EXPECT_EQ(alone.fills[1].top[2].logprob, result.fills[1].top[2].logprob);
    }
}

TEST(PoolingEngine, RefusesWhatNoStepCanCompute) {
    Rig rig("bert-seq", {.sequences_max = 8, .step_rows_max = 32});
    EXPECT_EQ(rig.engine->context_max(), 32);
    const auto results = rig.run({rig.request(1, PoolingTask::classify, 32), rig.request(2, PoolingTask::token_classify, 8)});
    EXPECT_FALSE(results.at(1).error);
    EXPECT_EQ(results.at(1).labels->names.size(), 3U);
    ASSERT_TRUE(results.at(2).error);
    EXPECT_EQ(results.at(2).error->code, schema::ErrorCode::unsupported_by_model);

    // A decoder whose tokens are all pooled.
    Rig decoder("llama-mha", {.sequences_max = 8, .step_rows_max = 32}, {}, PoolingMode::mean);
    const auto texts = decoder.run({decoder.request(1, PoolingTask::embed, 32), decoder.request(2, PoolingTask::embed, 33)});
    EXPECT_FALSE(texts.at(1).error);
    ASSERT_TRUE(texts.at(2).error);
    EXPECT_EQ(texts.at(2).error->code, schema::ErrorCode::context_length_exceeded);
}

// Pins: whole texts of large jobs, which may be longer than their share of a step, run while others have work.
TEST(PoolingEngine, RunsLongTextsOfLargeJobsBesideOthers) {
    Rig rig("bert", {.sequences_max = 8, .step_rows_max = 64});
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 12; ++id) {
        requests.push_back(rig.request(id, PoolingTask::embed, id % 2 == 0 ? 60 : 10));
        requests.back().large = id % 2 == 0;
    }
    const auto results = rig.run(requests);
    for (const Request& request : requests) EXPECT_EQ(results.at(request.id).pooled.size(), 36U);
}

// Pins: such a text never ran while other requests decoded, because a step never had enough rows left.
TEST(PoolingEngine, RunsALargeJobsTextThatNeedsAWholeStepBesideSteadyDecodes) {
    Rig rig("llama-mha", {.sequences_max = 4, .step_rows_max = 16}, {}, PoolingMode::mean);
    Request text = rig.request(1, PoolingTask::embed, 16);
    text.large = true;
    RequestId next = 2;
    const auto submit_drawing = [&] {
        Request request = rig.request(next++, PoolingTask::embed, 3);
        request.pooling.reset();
        request.max_tokens = 20;
        rig.engine->submit(std::move(request));
    };
    for (int i = 0; i < 6; ++i) submit_drawing();
    StepOutput output;
    rig.engine->step(output);
    rig.engine->submit(text);
    std::optional<Result> result;
    for (int steps = 0; steps < 300 && !result; ++steps) {
        rig.engine->step(output);
        for (Result& one : output.results) {
            if (one.id == 1) result = std::move(one);
            submit_drawing();
        }
    }
    ASSERT_TRUE(result) << "it waits for ever";
    Rig alone("llama-mha", {.sequences_max = 4, .step_rows_max = 16}, {}, PoolingMode::mean);
    EXPECT_EQ(alone.run({text}).at(1).pooled, result->pooled);
}

}  // namespace
}  // namespace lorry::engine
