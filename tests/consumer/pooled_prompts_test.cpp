// The requests of jobs for embeddings, classes, scores and filled masks, and each way in which such a job is refused.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consumer/preparer.h"
#include "schema/codec.h"
#include "tests/support/encoder_tokenizer.h"
#include "tests/support/temp_folder.h"

namespace lorry::consumer {
namespace {

using engine::ModelConfig;
using engine::PoolingTask;
using testing::HasSubstr;
using testing::StartsWith;

const engine::Tokenizer& uncased() { return tests::encoder_tokenizer("bert_uncased"); }

ModelConfig encoder() {
    return {.vocabulary = static_cast<std::int64_t>(uncased().vocabulary_size()), .generates = false, .is_encoder = true, .token_types = 2};
}
ModelConfig embedder() {
    ModelConfig config = encoder();
    config.embedder =
        engine::EmbedderConfig{.normalized = true, .dimensions = 8, .prompts = {{"query", "in "}, {"document", ""}}, .default_prompt = {}};
    return config;
}
ModelConfig classifier(std::vector<std::string> names, PoolingTask head = PoolingTask::classify) {
    ModelConfig config = encoder();
    config.labels = std::make_shared<const engine::Labels>(engine::Labels{.names = std::move(names)});
    config.head = head;
    return config;
}
ModelConfig mask_filler() {
    ModelConfig config = encoder();
    config.fills_masks = true;
    return config;
}
ModelConfig generator() { return {.vocabulary = static_cast<std::int64_t>(uncased().vocabulary_size())}; }

Expected<PreparedJob, RefusedJob> prepare(const ModelConfig& config, const std::string& url, const std::string& members,
                                          bool is_adapter = false, const engine::Tokenizer& tokenizer = uncased()) {
    const std::string line = fmt::format(R"({{"custom_id":"a","url":"{}","body":{{"model":"base",{}}}}})", url, members);
    auto job = schema::parse_job({.source = {}, .key = {}, .value = line, .headers = {}, .timestamp = {}}, {});
    CHECK(job.has_value(), "the test's job is good");
    const Preparer preparer(tokenizer, std::nullopt, config, {.context_max = 20});
    return preparer.prepare(std::move(*job), {.kind = is_adapter ? ModelName::Kind::adapter : ModelName::Kind::base, .hash = "h"});
}

PreparedJob prepared(const ModelConfig& config, const std::string& url, const std::string& members, bool is_adapter = false) {
    auto job = prepare(config, url, members, is_adapter);
    CHECK(job.has_value(), "the job can run");
    return std::move(*job);
}

// "400 code param: message", or "accepted".
std::string refusal(const ModelConfig& config, const std::string& url, const std::string& members, bool is_adapter = false) {
    const auto job = prepare(config, url, members, is_adapter);
    if (job) return "accepted";
    const schema::JobError& error = job.error().error;
    return fmt::format("{} {} {}: {}", error.status_code(), name_of(error.code), error.param, error.message);
}

// "[CLS] in the [SEP] / 0 0 0 0"
std::string shown(const engine::Request& request) {
    std::vector<std::string> tokens;
    for (const auto id : request.prompt) tokens.push_back(uncased().token_spelling(id));
    return fmt::format("{} / {}", fmt::join(tokens, " "), fmt::join(request.token_types, ""));
}
std::vector<std::string> shown(const PreparedJob& job) {
    std::vector<std::string> lines;
    for (const engine::Request& request : job.requests) lines.push_back(shown(request));
    return lines;
}

using Lines = std::vector<std::string>;

TEST(PooledPrompts, EachTextToEmbedIsOneRequest) {
    const PreparedJob job = prepared(embedder(), "/v1/embeddings", R"("input":["in","the in"],"priority":2)");
    EXPECT_EQ(shown(job), (Lines{"[CLS] in [SEP] / 000", "[CLS] the in [SEP] / 0000"}));
    for (const engine::Request& request : job.requests) {
        EXPECT_EQ(request.pooling, PoolingTask::embed);
        EXPECT_EQ(request.max_tokens, 0);
        EXPECT_EQ(request.priority, 2);
    }
    EXPECT_EQ(job.plan.prompt_tokens, 7);
    EXPECT_TRUE(job.plan.normalized) << "as the model is configured";
    EXPECT_FALSE(prepared(embedder(), "/v1/embeddings", R"("input":"in","normalize":false)").plan.normalized);
    EXPECT_EQ(prepared(embedder(), "/v1/embeddings", R"("input":[[5,6,7]])").requests.front().prompt,
              (std::vector<engine::TokenId>{5, 6, 7}));
}

TEST(PooledPrompts, APromptOfTheModelGoesBeforeTheText) {
    EXPECT_EQ(shown(prepared(embedder(), "/v1/embeddings", R"("input":"the","prompt_name":"query")")),
              (Lines{"[CLS] in the [SEP] / 0000"}));
    EXPECT_EQ(shown(prepared(embedder(), "/v1/embeddings", R"("input":"the","input_type":"document")")), (Lines{"[CLS] the [SEP] / 000"}));
    ModelConfig by_default = embedder();
    by_default.embedder->default_prompt = "query";
    EXPECT_EQ(shown(prepared(by_default, "/v1/embeddings", R"("input":"the")")), (Lines{"[CLS] in the [SEP] / 0000"}));
    EXPECT_EQ(refusal(embedder(), "/v1/embeddings", R"("input":"the","prompt_name":"passage")"),
              "400 invalid_value prompt_name: the model has no prompt 'passage'; it has: query, document");
    EXPECT_THAT(refusal(embedder(), "/v1/embeddings", R"("input":[5],"prompt_name":"query")"),
                StartsWith("400 invalid_value prompt_name: field 'prompt_name' needs texts"));
    ModelConfig without = embedder();
    without.embedder->prompts.clear();
    EXPECT_THAT(refusal(without, "/v1/embeddings", R"("input":"the","prompt_name":"query")"), HasSubstr("it has none"));
}

TEST(PooledPrompts, ATextThatIsTooLongIsRefusedOrCut) {
    const std::string text = R"("input":"in in in in in in in in in in in in in in in in in in the")";
    EXPECT_EQ(refusal(embedder(), "/v1/embeddings", text),
              "400 context_length_exceeded input: this model takes 20 tokens; field 'input' has 21: shorten it, or give "
              "'truncate_prompt_tokens': -1 (for a table, --truncate)");
    EXPECT_EQ(prepared(embedder(), "/v1/embeddings", text + R"(,"truncate_prompt_tokens":-1)").requests.front().prompt.size(), 20U);
    EXPECT_EQ(shown(prepared(embedder(), "/v1/embeddings", text + R"(,"truncate_prompt_tokens":4)")), (Lines{"[CLS] in in [SEP] / 0000"}));
    EXPECT_EQ(shown(prepared(embedder(), "/v1/embeddings", text + R"(,"truncate_prompt_tokens":4,"truncation_side":"left")")),
              (Lines{"[CLS] in the [SEP] / 0000"}));
    EXPECT_THAT(
        refusal(embedder(), "/v1/embeddings", text + R"(,"truncate_prompt_tokens":21)"),
        StartsWith(
            "400 invalid_value truncate_prompt_tokens: field 'truncate_prompt_tokens' is 21; this model takes 20 tokens: give 1 to 20"));
    const std::string ids = R"("input":[5,6,7,8],"truncate_prompt_tokens":3)";
    EXPECT_EQ(prepared(embedder(), "/v1/embeddings", ids).requests.front().prompt, (std::vector<engine::TokenId>{5, 6, 7}));
    EXPECT_EQ(prepared(embedder(), "/v1/embeddings", ids + R"(,"truncation_side":"left")").requests.front().prompt,
              (std::vector<engine::TokenId>{6, 7, 8}));
    EXPECT_THAT(refusal(mask_filler(), "/fill_mask", R"("input":"in in in in in in in in in in in in in in in in in in [MASK]")"),
                testing::EndsWith("has 21: shorten it"));
}

// Pins: a limit without room for the text was answered, with the vector or the class of special tokens alone.
TEST(PooledPrompts, ALimitThatLeavesNoRoomForATextIsRefusedWithTheLeastThatDoes) {
    const auto least = [](const ModelConfig& config, const std::string& url, const std::string& members) {
        std::string shown;
        for (int limit = 1; limit <= 20; ++limit) {
            const std::string error = refusal(config, url, fmt::format(R"({},"truncate_prompt_tokens":{})", members, limit));
            if (error == "accepted") return fmt::format("{} {}", limit, shown);
            EXPECT_THAT(error, StartsWith("400 invalid_value truncate_prompt_tokens: field 'truncate_prompt_tokens': a limit of "));
            shown = error.substr(error.find("so at least"));
        }
        return shown;
    };
    EXPECT_EQ(least(embedder(), "/v1/embeddings", R"("input":"in the")"), "3 so at least 3 are needed");
    EXPECT_EQ(least(embedder(), "/v1/embeddings", R"("input":"the a","prompt_name":"query")"), "4 so at least 4 are needed");
    EXPECT_EQ(least(embedder(), "/v1/embeddings", R"("input":"the a","prompt_name":"query","truncation_side":"left")"),
              "3 so at least 3 are needed");
    EXPECT_EQ(least(embedder(), "/score", R"("text_1":"in the","text_2":"the a")"), "3 so at least 3 are needed");
    EXPECT_EQ(least(classifier({"x", "y"}), "/classify", R"("input":"in the")"), "3 so at least 3 are needed");
    EXPECT_EQ(least(classifier({"x", "y"}, PoolingTask::token_classify), "/token_classify", R"("input":"in the")"),
              "3 so at least 3 are needed");
    EXPECT_EQ(least(classifier({"relevance"}), "/score", R"("text_1":"in the a","text_2":"the a a")"), "5 so at least 5 are needed");
    EXPECT_EQ(least(classifier({"entailment", "other"}), "/classify",
                    R"("input":"in the a","choices":["a","the"],"hypothesis_template":"in {}")"),
              "6 so at least 6 are needed");
}

// Pins: a window, and a text that was cut, had as many tokens as the context holds, and the engine refused them.
TEST(PooledPrompts, TextsOfADecoderAreCutToWhatOneStepPools) {
    ModelConfig config = generator();
    config.embedder = engine::EmbedderConfig{.pooling = engine::PoolingMode::mean, .dimensions = 8};
    const auto tokens = [&](const std::string& members) {
        const Preparer preparer(uncased(), std::nullopt, config, {.context_max = 20, .whole_max = 6});
        const std::string line =
            fmt::format(R"({{"custom_id":"a","url":"/v1/embeddings","body":{{"model":"base","input":"a a a a a a",{}}}}})", members);
        auto job = schema::parse_job({.source = {}, .key = {}, .value = line, .headers = {}, .timestamp = {}}, {});
        const auto made = preparer.prepare(std::move(*job), {.kind = ModelName::Kind::base});
        if (!made) return made.error().error.message;
        std::vector<std::size_t> lengths;
        for (const engine::Request& request : made->requests) lengths.push_back(request.prompt.size());
        return fmt::format("{}", fmt::join(lengths, " "));
    };
    EXPECT_EQ(tokens(R"("truncate_prompt_tokens":-1)"), "6");
    EXPECT_EQ(tokens(R"("stride":1)"), "6 5");
    EXPECT_THAT(tokens(R"("user":"u")"),
                StartsWith("this model pools up to 6 tokens of a text (step_tokens); field 'input' has 8: shorten"));
    config.embedder->pooling = engine::PoolingMode::last;
    EXPECT_EQ(tokens(R"("stride":1)"), "8");
}

TEST(PooledPrompts, WhatIsWrongWithATextIsNamedWithItsPlace) {
    EXPECT_EQ(refusal(embedder(), "/v1/embeddings", R"("input":["in",""])"),
              "400 empty_prompt input[1]: field 'input[1]' is an empty text; give at least one character");
    EXPECT_THAT(refusal(embedder(), "/v1/embeddings", R"("input":[[5],[99999]])"),
                StartsWith("400 unknown_token input[1]: token id 99999 is not in the vocabulary"));
    EXPECT_EQ(refusal(embedder(), "/v1/embeddings", R"("input":"in","dimensions":9)"),
              "400 invalid_value dimensions: field 'dimensions' is 9; this model allows 1 to 8");
    EXPECT_EQ(refusal(embedder(), "/v1/embeddings", R"("input":"in","dimensions":8)"), "accepted");
}

TEST(PooledPrompts, AHeadClassifiesEachTextAndAnAdapterMayBringOne) {
    const PreparedJob job = prepared(classifier({"yes", "no"}), "/classify", R"("input":["in","the"])");
    EXPECT_EQ(job.plan.work, Work::classify);
    EXPECT_EQ(job.requests.size(), 2U);
    EXPECT_EQ(job.requests.front().pooling, PoolingTask::classify);
    for (const ModelConfig& base : {generator(), encoder(), embedder()}) {
        const PreparedJob adapted = prepared(base, "/classify", R"("input":"in")", true);
        EXPECT_EQ(adapted.requests.front().pooling, PoolingTask::classify);
        EXPECT_EQ(adapted.requests.front().adapter->hash, "h");
        EXPECT_EQ(prepared(base, "/token_classify", R"("input":"in")", true).requests.front().pooling, PoolingTask::token_classify);
    }
}

TEST(PooledPrompts, ChoicesAreScoredByAModelThatGeneratesAndComparedByOneForInference) {
    EXPECT_EQ(prepared(generator(), "/classify", R"("input":"in","choices":["in","the"])").plan.work, Work::score_choices);
    const ModelConfig inference = classifier({"contradiction", "neutral", "entailment"});
    const PreparedJob job = prepared(inference, "/classify", R"("input":["in","the"],"choices":["a","b"],"hypothesis_template":"is {}")");
    EXPECT_EQ(job.plan.work, Work::zero_shot);
    EXPECT_EQ(shown(job), (Lines{"[CLS] in [SEP] is a [SEP] / 000111", "[CLS] in [SEP] is b [SEP] / 000111",
                                 "[CLS] the [SEP] is a [SEP] / 000111", "[CLS] the [SEP] is b [SEP] / 000111"}));
    EXPECT_EQ(job.plan.places[2].prompt, 1);
    EXPECT_EQ(job.plan.places[3].choice, 1);
    const PreparedJob cut = prepared(
        inference, "/classify", R"("input":"in in in in","choices":["a","b"],"hypothesis_template":"is {}","truncate_prompt_tokens":6)");
    EXPECT_EQ(shown(cut.requests.front()), "[CLS] in [SEP] is a [SEP] / 000111") << "only the text is cut";
    EXPECT_EQ(refusal(classifier({"yes", "no"}), "/classify", R"("input":"in","choices":["a","b"])"),
              "400 unsupported_by_model choices: 'choices' need a head with a label that starts with \"entail\"; this model's head has 2: "
              "yes, no");
    EXPECT_THAT(refusal(generator(), "/classify", R"("input":"in","choices":["in","the"],"multi_label":true)"),
                StartsWith("400 unsupported_field multi_label"));
    EXPECT_THAT(refusal(generator(), "/classify", R"("input":"in","choices":["in","the"],"hypothesis_template":"{}")"),
                StartsWith("400 unsupported_field hypothesis_template"));
    EXPECT_THAT(refusal(generator(), "/classify", R"("input":"in","choices":["in","the"],"truncate_prompt_tokens":4)"),
                StartsWith("400 unsupported_field truncate_prompt_tokens"));
    EXPECT_THAT(refusal(inference, "/classify", R"("input":[5],"choices":["a","b"])"),
                StartsWith("400 invalid_type input: field 'input' has token ids"));
    EXPECT_THAT(refusal(inference, "/classify", R"("messages":[{"role":"user","content":"x"}],"choices":["a","b"])"),
                StartsWith("400 unsupported_field messages"));
}

TEST(PooledPrompts, TokensAreClassifiedWithTheirPlaces) {
    const PreparedJob job = prepared(classifier({"O", "B-X"}, PoolingTask::token_classify), "/token_classify", R"("input":["the in"])");
    EXPECT_EQ(job.requests.front().pooling, PoolingTask::token_classify);
    ASSERT_EQ(job.plan.texts.size(), 1U);
    EXPECT_EQ(job.plan.texts[0].text, "the in");
    EXPECT_EQ(job.plan.texts[0].tokens, job.requests.front().prompt);
    EXPECT_EQ(job.plan.texts[0].spans[2].begin, 4);
    EXPECT_EQ(job.plan.texts[0].spans[0].text, -1);
}

TEST(PooledPrompts, PairsGoThroughACrossEncoder) {
    const ModelConfig cross_encoder = classifier({"LABEL_0"});
    EXPECT_EQ(shown(prepared(cross_encoder, "/rerank", R"("query":"in","documents":["the","a"])")),
              (Lines{"[CLS] in [SEP] the [SEP] / 00011", "[CLS] in [SEP] a [SEP] / 00011"}));
    EXPECT_EQ(shown(prepared(cross_encoder, "/score", R"("text_1":["in","the"],"text_2":["a","b"])")),
              (Lines{"[CLS] in [SEP] a [SEP] / 00011", "[CLS] the [SEP] b [SEP] / 00011"}));
    EXPECT_THAT(refusal(classifier({"yes", "no"}), "/score", R"("text_1":"in","text_2":"the")"),
                StartsWith("400 unsupported_by_model model: this model cannot score pairs of texts; it classifies texts (/classify)"));
    EXPECT_EQ(prepared(classifier({"yes", "no"}), "/score", R"("text_1":"in","text_2":"the")", true).plan.work, Work::score_pairs);
}

// As transformers, which gives a model what model_input_names lists.
TEST(PooledPrompts, TypesThatTheTokenizerLeavesOutAreNotGiven) {
    const tests::TempFolder folder;
    const auto from = std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data/text/encoders/bert_uncased";
    std::filesystem::copy_file(from / "tokenizer.json", folder / "tokenizer.json");
    const auto types_with = [&](const std::string& config) {
        tests::write_text(folder / "tokenizer_config.json", config);
        const engine::Tokenizer tokenizer = engine::Tokenizer::load(folder / "");
        const auto job = prepare(classifier({"LABEL_0"}), "/score", R"("text_1":"in","text_2":"the")", false, tokenizer);
        return fmt::format("{}", fmt::join(job->requests.front().token_types, ""));
    };
    EXPECT_EQ(types_with("{}"), "00011");
    EXPECT_EQ(types_with(R"({"model_input_names":["input_ids","token_type_ids","attention_mask"]})"), "00011");
    EXPECT_EQ(types_with(R"({"model_input_names":["input_ids","attention_mask"]})"), "");
}

// Pins: /score by a reranker's adapter over an encoder that makes embeddings was refused.
TEST(PooledPrompts, AnAdaptersOwnHeadDecides) {
    const auto tokenized = [](const ModelConfig& config, const std::string& url, const std::string& members, AdapterHead head) {
        const std::string line = fmt::format(R"({{"custom_id":"a","url":"{}","body":{{"model":"x",{}}}}})", url, members);
        auto job = schema::parse_job({.source = {}, .key = {}, .value = line, .headers = {}, .timestamp = {}}, {});
        const Preparer preparer(uncased(), std::nullopt, config, {.context_max = 20});
        return preparer.tokenize(std::move(*job), {.kind = ModelName::Kind::adapter, .hash = "h", .head = head}).value();
    };
    const std::string pair = R"("text_1":"in","text_2":"the")";
    EXPECT_EQ(tokenized(embedder(), "/score", pair, {PoolingTask::classify, 1}).plan.work, Work::score_pairs);
    EXPECT_EQ(tokenized(embedder(), "/score", pair, {PoolingTask::classify, 2}).plan.work, Work::compare_embeddings);
    const auto bytes = [&](std::int64_t labels) {
        return tokenized(embedder(), "/classify", R"("input":"in")", {PoolingTask::classify, labels}).weight.bytes;
    };
    EXPECT_EQ(bytes(1'000) - bytes(2), 998 * 4) << "they are weighed as many as they are";
    // It was trained on plain pairs, whatever its base reads.
    ModelConfig reranker = generator();
    reranker.labels = classifier({"LABEL_0"}).labels;
    reranker.token_score = engine::TokenScore{};
    EXPECT_EQ(tokenized(reranker, "/score", pair, {PoolingTask::classify, 1}).prompts.front().tokens,
              uncased().encode_pair("in", "the", std::nullopt)->ids);
}

TEST(PooledPrompts, AnEmbedderEmbedsEachDistinctTextOnce) {
    const PreparedJob job = prepared(embedder(), "/score", R"("text_1":["in","the","in"],"text_2":["a","in","a"])");
    EXPECT_EQ(shown(job), (Lines{"[CLS] in [SEP] / 000", "[CLS] a [SEP] / 000", "[CLS] the [SEP] / 000"}));
    std::string pairs;
    for (const RequestPair& pair : job.plan.pairs) pairs += fmt::format("{}-{} ", pair.first, pair.second);
    EXPECT_EQ(pairs, "0-1 2-0 0-1 ");
    EXPECT_EQ(job.plan.places.size(), 3U);
}

TEST(PooledPrompts, MasksAreFound) {
    const PreparedJob job = prepared(mask_filler(), "/fill_mask", R"("input":["the [MASK]","[MASK] in [MASK]"],"top_k":3)");
    EXPECT_EQ(job.requests[0].mask_positions, (std::vector<std::int64_t>{2}));
    EXPECT_EQ(job.requests[1].mask_positions, (std::vector<std::int64_t>{1, 3}));
    EXPECT_EQ(job.requests[1].score_top, 3);
    EXPECT_EQ(refusal(mask_filler(), "/fill_mask", R"("input":["the [MASK]","the <mask>"])"),
              "400 invalid_value input[1]: field 'input[1]' has no mask token; write [MASK] where the model fills in a word");
}

TEST(PooledPrompts, WorkThatTheModelCannotDoIsRefusedWithWhatItCan) {
    EXPECT_EQ(refusal(classifier({"a", "b"}), "/v1/embeddings", R"("input":"in")"),
              "400 unsupported_by_model model: this model cannot make embeddings; it classifies texts (/classify)");
    EXPECT_EQ(refusal(embedder(), "/v1/completions", R"("prompt":"in")"),
              "400 unsupported_by_model model: this model cannot generate text; it makes embeddings (/v1/embeddings, /score, /rerank)");
    EXPECT_EQ(refusal(embedder(), "/v1/completions", R"("prompt":"in")", true).substr(0, 30), "400 unsupported_by_model model")
        << "an adapter does not change that";
    EXPECT_EQ(refusal(embedder(), "/fill_mask", R"("input":"in")").substr(0, 24), "400 unsupported_by_model");
    EXPECT_EQ(refusal(embedder(), "/classify", R"("input":"in")").substr(0, 24), "400 unsupported_by_model");
    EXPECT_EQ(refusal(embedder(), "/classify", R"("input":"in","choices":["a","b"])").substr(0, 24), "400 unsupported_by_model");
    EXPECT_EQ(refusal(classifier({"O"}, PoolingTask::token_classify), "/classify", R"("input":"in")"),
              "400 unsupported_by_model model: this model cannot classify texts; it classifies tokens (/token_classify)");
    EXPECT_EQ(refusal(classifier({"a"}), "/token_classify", R"("input":"in")"),
              "400 unsupported_by_model model: this model cannot classify tokens; it classifies and scores pairs of texts (/classify, "
              "/score, /rerank)");
    EXPECT_EQ(refusal(mask_filler(), "/rerank", R"("query":"in","documents":["a"])"),
              "400 unsupported_by_model model: this model cannot score pairs of texts; it fills masks (/fill_mask)");
    EXPECT_EQ(refusal(generator(), "/v1/embeddings", R"("input":"in")"),
              "400 unsupported_by_model model: this model cannot make embeddings; it generates text (/v1/chat/completions, "
              "/v1/completions, /classify with 'choices')");
    EXPECT_THAT(refusal(generator(), "/classify", R"("input":"in")"), StartsWith("400 missing_field choices: field 'choices' is missing"));
}

TEST(PooledPrompts, APairNeedsATokenizerThatTakesPairs) {
    const tests::TempFolder folder;
    tests::write_text(folder / "tokenizer.json",
                      R"({"version":"1.0","added_tokens":[],"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":)"
                      R"({"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{}},)"
                      R"("model":{"type":"WordLevel","unk_token":"<unk>","vocab":{"<unk>":0}}})");
    const auto tokenizer = engine::Tokenizer::load(folder.path());
    const auto job = prepare(classifier({"LABEL_0"}), "/score", R"("text_1":"in","text_2":"the")", false, tokenizer);
    ASSERT_FALSE(job.has_value());
    EXPECT_EQ(job.error().error.code, schema::ErrorCode::unsupported_by_model);
    EXPECT_THAT(job.error().error.message, StartsWith("this model's tokenizer takes no pairs of texts"));
    EXPECT_TRUE(prepare(classifier({"a", "b"}), "/classify", R"("input":"in")", false, tokenizer).has_value());
}

TEST(PooledPrompts, AModelWithoutTokenTypesGetsNone) {
    ModelConfig config = embedder();
    for (const std::int64_t types : {0, 1}) {
        config.token_types = types;
        EXPECT_TRUE(prepared(config, "/v1/embeddings", R"("input":"in")").requests.front().token_types.empty());
    }
}

TEST(PooledPrompts, AJobWeighsItsTokensAndItsResults) {
    const auto weight = [](const ModelConfig& config, const std::string& url, const std::string& members) {
        const std::string line = fmt::format(R"({{"custom_id":"a","url":"{}","body":{{"model":"base",{}}}}})", url, members);
        auto job = schema::parse_job({.source = {}, .key = {}, .value = line, .headers = {}, .timestamp = {}}, {});
        const Preparer preparer(uncased(), std::nullopt, config, {.context_max = 20});
        return preparer.tokenize(std::move(*job), {.kind = ModelName::Kind::base})->weight;
    };
    const JobWeight embedded = weight(embedder(), "/v1/embeddings", R"("input":["in","the in"])");
    EXPECT_EQ(embedded.requests, 2);
    EXPECT_EQ(embedded.rows, 7);
    EXPECT_EQ(embedded.tokens, 7);
    EXPECT_EQ(embedded.bytes, 2 * (8 * 4 + request_bytes) + 7 * token_bytes);
    const JobWeight tokens = weight(classifier({"O", "B-X", "I-X"}, PoolingTask::token_classify), "/token_classify", R"("input":"in")");
    EXPECT_EQ(tokens.bytes, 3 * (3 * 4 + std::int64_t{sizeof(engine::TokenSpan)}) + request_bytes + 3 * token_bytes);
}

}  // namespace
}  // namespace lorry::consumer
