// Adapters with more or fewer tokens than the base, in one engine with others: each request draws from its own tokens, and gives the same
// bits as alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine/engine.h"
#include "engine/text/grammar.h"
#include "tests/support/golden_model.h"
#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/model_rig.h"

namespace lorry::engine {
namespace {

using testing::HasSubstr;
using tests::adapter_named;
using tests::ModelRig;
using tests::told;

constexpr const char* resized_base = "llama-gqa-linear";
constexpr std::int64_t tokens_of_base = 131;

class ResizedVocabulary : public testing::Test {
protected:
    struct Model {
        std::optional<AdapterSource> adapter;
        std::int64_t vocabulary = tokens_of_base;
    };
    ResizedVocabulary() {
        const ModelRig rig({}, resized_base, {});
        models.push_back({});
        for (const char* name : {"resized-plain", "plain", "shrunk-lm-head", "saved-head", "lm-head", "dora-lm-head"}) {
            AdapterSource source = adapter_named(name, rig.model->config());
            const std::int64_t vocabulary = source.vocabulary.value_or(tokens_of_base);
            models.push_back({std::move(source), vocabulary});
        }
    }
    // Requests of all models, flat enough that each token of a vocabulary can be drawn.
    std::vector<Request> requests() const {
        std::vector<Request> all;
        for (std::uint64_t i = 0; i < models.size() * 6; ++i) {
            const auto& [adapter, vocabulary] = models[i % models.size()];
            Request request{.id = i + 1, .adapter = adapter, .seed = i, .max_tokens = 20};
            for (std::uint64_t j = 0; j < 2 + i; ++j)
                request.prompt.push_back(static_cast<TokenId>((vocabulary - 1) - static_cast<std::int64_t>((i % 5 + 1) * j) % vocabulary));
            const bool repeats = i / models.size() == 2;
            Drawing drawing{.sampling = {.temperature = i % 3 == 0 ? 0.0 : 4.0,
                                         .top_p = i % 4 == 3 ? 0.95 : 1.0,
                                         .top_k = i % 5 == 4 ? 100 : 0,
                                         .repetition_penalty = repeats ? 1.1 : 1.0,
                                         .frequency_penalty = repeats ? 0.2 : 0.0,
                                         .logprobs = 20}};
            if (i / models.size() == 1) drawing.logit_bias = {{static_cast<TokenId>(vocabulary - 1), 2.0F}};
            if (i / models.size() == 3) drawing.allowed.assign(static_cast<std::size_t>(vocabulary + 31) / 32, 0xAAAAAAAAU);
            if (i / models.size() == 4) {
                request.score_begin = 0;
                request.score_top = 20;
                request.score_ranks = true;
                request.final_targets = {static_cast<TokenId>(vocabulary - 1), 0};
            }
            request.drawing = shared(std::move(drawing));
            all.push_back(std::move(request));
        }
        return all;
    }
    static std::map<RequestId, std::string> alone(const tests::Stored& stored, const std::vector<Request>& requests) {
        std::map<RequestId, std::string> expected;
        const ModelRig rig(stored, resized_base, {.prefix_cache = false, .force_together = false});
        for (const Request& request : requests) {
            for (const auto& [id, result] : rig.run({request})) expected[id] = told(result);
        }
        return expected;
    }
    static void expect_same(const std::map<RequestId, Result>& results, const std::map<RequestId, std::string>& expected) {
        ASSERT_EQ(results.size(), expected.size());
        for (const auto& [id, result] : results) EXPECT_EQ(told(result), expected.at(id)) << "request " << id;
    }

    std::vector<Model> models;
};

TEST_F(ResizedVocabulary, EachRequestDrawsFromTheTokensOfItsOwnModel) {
    const ModelRig rig({}, resized_base, {});
    const std::vector<Request> all = requests();
    std::map<std::int64_t, TokenId> largest;  // by vocabulary
    for (const auto& [id, result] : rig.run(all)) {
        ASSERT_FALSE(result.error) << result.error->message;
        const std::int64_t vocabulary = models[(id - 1) % models.size()].vocabulary;
        TokenId& most = largest[vocabulary];
        for (const TokenId token : result.tokens) most = std::max(most, token);
        for (const auto* entries : {&result.logprobs, &result.scores}) {
            for (const TokenLogprobs& entry : *entries) {
                for (const kernels::TokenLogprob& top : entry.top) EXPECT_LT(top.token, vocabulary);
                EXPECT_LE(entry.rank, vocabulary);
            }
        }
    }
    EXPECT_LT(largest.at(120), 120);
    EXPECT_GE(largest.at(131), 120);
    EXPECT_LT(largest.at(131), 131);
    EXPECT_GE(largest.at(138), 131) << "added tokens are drawn";
}

TEST_F(ResizedVocabulary, ABatchOfAllGivesTheBitsOfEachAlone) {
    const std::vector<Request> all = requests();
    const tests::Stored int8{.weights = kernels::Format::bfloat16, .quantize = kernels::Quantization::int8, .kv = kernels::KvFormat::int8};
    for (const tests::Stored& stored : {tests::Stored{}, int8}) {
        SCOPED_TRACE(stored.name());
        const auto expected = alone(stored, all);
        expect_same(ModelRig(stored, resized_base, {}).run(all), expected);
        // In chunks, with drafts, and preempted for want of blocks.
        expect_same(ModelRig(stored, resized_base, {.step_rows_max = 23, .drafts_max = 4, .draft_chance_least = 0.0}).run(all), expected);
        const ModelRig small(stored, resized_base, {}, 320);
        expect_same(small.run(all), expected);
        EXPECT_GT(small.engine->stats().preemptions, 0U);
    }
}

// Pins: the sampler, the head and the embedding together, from files to tokens.
TEST_F(ResizedVocabulary, GreedyTokensAreThoseOfPeft) {
    const ModelRig rig({}, resized_base, {});
    for (const char* name : {"resized-plain", "shrunk-lm-head"}) {
        for (const tests::GoldenCase& golden : tests::read_golden(tests::golden_folder() / "adapters" / name).cases) {
            Request request{.id = 1, .prompt = golden.prompt, .adapter = adapter_named(name, rig.model->config()), .max_tokens = 64};
            request.drawing = shared({.sampling = {.temperature = 0.0}});
            EXPECT_THAT(rig.run({request}).at(1).tokens, testing::ElementsAreArray(golden.greedy)) << name;
        }
    }
}

// The letters are tokens of the base.
TEST_F(ResizedVocabulary, AGrammarEndsWithATokenThatWasAdded) {
    const ModelRig rig({}, resized_base, {});
    const AdapterSource adapter = adapter_named("resized-plain", rig.model->config());
    GrammarCompiler compiler(tests::gpt2_tokenizer(), *adapter.vocabulary, {137});
    Request request{.id = 1, .prompt = {1, 135}, .adapter = adapter, .max_tokens = 20};
    request.drawing = shared({.sampling = {.temperature = 1.0},
                              .logit_bias = {{137, 100.0F}},
                              .end_tokens = {137},
                              .grammar = *compiler.compile({.kind = schema::Structure::Kind::regex, .text = "[a-f]{3,9}"})});
    Request of_base{.id = 2, .prompt = {1, 130}, .max_tokens = 20};
    of_base.drawing = shared({.sampling = {.temperature = 4.0}});
    const Result result = rig.run({request, of_base}).at(1);
    EXPECT_EQ(result.tokens.size(), 4U);
    EXPECT_EQ(result.tokens.back(), 137);
    EXPECT_EQ(result.finish, FinishReason::stop);
}

// Pins: a wrong registration would let ids through that the model has no rows for, which ends the process.
TEST_F(ResizedVocabulary, ARequestForAnotherVocabularyThanTheAdaptersFailsAlone) {
    const ModelRig rig({}, resized_base, {.step_rows_max = 16});
    const auto& config = rig.model->config();
    const auto request_of = [&](RequestId id, const char* adapter, std::optional<std::int64_t> vocabulary, TokenId token) {
        Request request{.id = id, .prompt = std::vector<TokenId>(40, token), .adapter = adapter_named(adapter, config), .max_tokens = 4};
        request.adapter->vocabulary = vocabulary;
        request.score_begin = 0;
        return request;
    };
    const auto results = rig.run({request_of(1, "plain", 138, 137), request_of(2, "resized-plain", std::nullopt, 130),
                                  request_of(3, "shrunk-lm-head", 131, 130), request_of(4, "resized-plain", 138, 137),
                                  request_of(5, "resized-plain", 70'000, 69'999)});
    for (const RequestId id : {1U, 2U, 3U, 5U}) {
        ASSERT_TRUE(results.at(id).error) << id;
        EXPECT_EQ(results.at(id).error->code, schema::ErrorCode::adapter_failed);
        EXPECT_THAT(results.at(id).error->message, HasSubstr("another number of tokens than it was registered with"));
    }
    EXPECT_FALSE(results.at(4).error);
    EXPECT_EQ(results.at(4).tokens.size(), 4U);
}

}  // namespace
}  // namespace lorry::engine
