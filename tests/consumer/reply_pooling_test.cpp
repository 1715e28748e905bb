// Answers made of the engine's vectors and logits. Vectors of zero-shot classification and of filled masks are what transformers 5.23's
// pipelines returned for the same logits.
#include "consumer/reply_pooling.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "consumer/reply.h"
#include "schema/base64.h"
#include "tests/support/encoder_tokenizer.h"

namespace lorry::consumer {
namespace {

using engine::ProblemType;
using engine::Result;
using schema::Endpoint;
using schema::Json;

ReplyPlan plan_of(Endpoint endpoint, Work work) {
    ReplyPlan plan;
    plan.job.source = {.topic = "jobs", .partition = 0, .offset = 1};
    plan.job.custom_id = "a";
    plan.job.endpoint = endpoint;
    plan.job.model = "base";
    plan.work = work;
    plan.prompt_tokens = 9;
    return plan;
}

Result pooled(std::vector<float> values, std::vector<std::string> names = {}, ProblemType problem = ProblemType::single_label) {
    Result result;
    result.pooled = std::move(values);
    if (!names.empty())
        result.labels = std::make_shared<const engine::Labels>(engine::Labels{.names = std::move(names), .problem = problem});
    return result;
}

const engine::Tokenizer& bert() { return tests::encoder_tokenizer("bert_uncased"); }

// Each result is of a prompt of its own.
std::vector<RequestPlace> places_of(const std::vector<Result>& results) {
    std::vector<RequestPlace> places(results.size());
    for (std::size_t i = 0; i < places.size(); ++i) places[i].prompt = static_cast<std::int32_t>(i);
    return places;
}

Json body_of(ReplyPlan plan, const std::vector<Result>& results, const engine::Tokenizer& tokenizer = bert()) {
    plan.places = places_of(results);
    const ReplyContext context{.tokenizer = tokenizer, .base_name = "tiny", .system_fingerprint = "fp"};
    return make_reply(context, plan, results, {}).body;
}
// The reply's list as JSON text.
std::string list_of(const ReplyPlan& plan, const std::vector<Result>& results, const engine::Tokenizer& tokenizer = bert()) {
    return body_of(plan, results, tokenizer).find(schema::row_of(plan.job.endpoint).list_key)->dump();
}

// The numbers in a list's entry, rounded: "0.5000 0.2500".
std::string rounded(const Json& list) {
    std::string text;
    for (const Json& one : *list.as_array()) text += fmt::format("{}{:.6f}", text.empty() ? "" : " ", *one.as_number());
    return text;
}
const Json& entry(const Json& body, std::size_t index) { return (*body.find("data")->as_array())[index]; }

TEST(PooledReply, AnEmbeddingHasTheShapeOfOpenAIs) {
    const ReplyPlan plan = plan_of(Endpoint::embeddings, Work::embed);
    Json body = body_of(plan, {pooled({0.5F, -0.1F, 3.0F}), pooled({1e-7F, 0.0F, 16777216.0F})});
    const std::string id = *body.find("id")->as_string();
    EXPECT_TRUE(id.starts_with("embd-")) << id;
    body.set("id", "embd-x");
    EXPECT_EQ(body.dump(),
              R"({"id":"embd-x","object":"list","created":0,"model":"tiny","system_fingerprint":"fp","data":[)"
              R"({"object":"embedding","index":0,"embedding":[0.5,-0.1,3.0]},)"
              R"({"object":"embedding","index":1,"embedding":[1e-07,0.0,16777216.0]}],)"
              R"("usage":{"prompt_tokens":9,"completion_tokens":0,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":0}}})");
}

TEST(PooledReply, AnEmbeddingIsCutAndThenScaled) {
    ReplyPlan plan = plan_of(Endpoint::embeddings, Work::embed);
    plan.normalized = true;
    const std::vector<Result> results{pooled({3.0F, 4.0F, 12.0F}), pooled({0.0F, 0.0F, 0.0F})};
    EXPECT_EQ(rounded(*entry(body_of(plan, results), 0).find("embedding")), "0.230769 0.307692 0.923077");
    EXPECT_EQ(rounded(*entry(body_of(plan, results), 1).find("embedding")), "0.000000 0.000000 0.000000") << "no direction to keep";
    plan.job.pooling.dimensions = 2;
    EXPECT_EQ(rounded(*entry(body_of(plan, results), 0).find("embedding")), "0.600000 0.800000");
    plan.normalized = false;
    EXPECT_EQ(rounded(*entry(body_of(plan, results), 0).find("embedding")), "3.000000 4.000000");
}

TEST(PooledReply, Base64IsLittleEndianFloat32AndEqualsTheNumbers) {
    ReplyPlan plan = plan_of(Endpoint::embeddings, Work::embed);
    plan.normalized = true;
    const std::vector<Result> results{pooled({0.1F, -0.7F, 1e-5F})};
    const Json numbers = *entry(body_of(plan, results), 0).find("embedding");
    plan.job.pooling.base64 = true;
    const std::string bytes = *schema::from_base64(*entry(body_of(plan, results), 0).find("embedding")->as_string());
    ASSERT_EQ(bytes.size(), 12U);
    for (std::size_t i = 0; i < 3; ++i) {
        std::uint32_t bits = 0;
        for (std::size_t k = 0; k < 4; ++k) bits |= std::uint32_t{static_cast<unsigned char>(bytes[4 * i + k])} << (8 * k);
        EXPECT_EQ(std::bit_cast<float>(bits), static_cast<float>(*(*numbers.as_array())[i].as_number()));
    }
    plan.normalized = false;
    EXPECT_EQ(list_of(plan, {pooled({1.0F})}), R"([{"object":"embedding","index":0,"embedding":"AACAPw=="}])");
}

TEST(PooledReply, AClassHasTheShapeOfVllms) {
    const ReplyPlan plan = plan_of(Endpoint::classify, Work::classify);
    EXPECT_EQ(list_of(plan, {pooled({0.0F, 0.0F}, {"no", "yes"}), pooled({-300.0F, 300.0F}, {"no", "yes"})}),
              R"([{"index":0,"label":"no","probs":[0.5,0.5],"num_classes":2},)"
              R"({"index":1,"label":"yes","probs":[2.6503965530043108e-261,1.0],"num_classes":2}])");
    const Json several = body_of(plan, {pooled({0.0F, 2.0F, 1.0F}, {"a", "b", "c"}, ProblemType::multi_label)});
    EXPECT_EQ(rounded(*entry(several, 0).find("probs")), "0.500000 0.880797 0.731059") << "each by itself";
    EXPECT_EQ(*entry(several, 0).find("label")->as_string(), "b");
    EXPECT_EQ(list_of(plan, {pooled({-2.5F}, {"price"}, ProblemType::regression)}),
              R"([{"index":0,"label":"price","probs":[-2.5],"num_classes":1}])");
}

std::string zero_shot(const std::vector<std::string>& names, bool multi_label) {
    ReplyPlan plan = plan_of(Endpoint::classify, Work::zero_shot);
    plan.job.choices = {"a", "b", "c"};
    plan.job.pooling.multi_label = multi_label;
    const Json body =
        body_of(plan, {pooled({1.5F, -0.5F, 0.25F}, names), pooled({-1.0F, 0.5F, 2.0F}, names), pooled({0.75F, 0.0F, -2.5F}, names)});
    EXPECT_EQ(body.find("data")->as_array()->size(), 1U);
    return *entry(body, 0).find("label")->as_string() + " " + rounded(*entry(body, 0).find("probs"));
}

TEST(PooledReply, ChoicesAreComparedAsByTransformers) {
    const std::vector<std::string> names{"contradiction", "neutral", "entailment"};
    EXPECT_EQ(zero_shot(names, false), "b 0.146659 0.843965 0.009376");
    EXPECT_EQ(zero_shot(names, true), "b 0.222700 0.952574 0.037327");
    const std::vector<std::string> reversed{"ENTAILMENT", "NEUTRAL", "CONTRADICTION"};
    EXPECT_EQ(zero_shot(reversed, false), "a 0.643314 0.052806 0.303880");
    EXPECT_EQ(zero_shot(reversed, true), "c 0.777300 0.047426 0.962673");
}

TEST(PooledReply, EachTextOfAZeroShotJobIsOneEntry) {
    ReplyPlan plan = plan_of(Endpoint::classify, Work::zero_shot);
    plan.job.choices = {"a", "b"};
    const std::vector<std::string> names{"no", "entails"};
    EXPECT_EQ(list_of(plan, {pooled({0, 1}, names), pooled({9, 1}, names), pooled({0, 200}, names), pooled({0, -600}, names)}),
              R"([{"index":0,"label":"a","probs":[0.5,0.5],"num_classes":2},{"index":1,"label":"a","probs":[1.0,0.0],"num_classes":2}])");
}

ReplyPlan mask_plan(const engine::Tokenizer& tokenizer, const std::string& text) {
    ReplyPlan plan = plan_of(Endpoint::fill_mask, Work::fill_mask);
    TokenizedPrompt prompt{.text = text, .tokens = tokenizer.encode_pair(text, std::nullopt, std::nullopt)->ids};
    for (std::size_t i = 0; i < prompt.tokens.size(); ++i) {
        if (prompt.tokens[i] == tokenizer.mask_token()) prompt.mask_positions.push_back(static_cast<std::int64_t>(i));
    }
    plan.texts.push_back(std::move(prompt));
    return plan;
}

// The fills with these tokens, 0.75 and 0.25, for each mask: "in|the in reads."
std::string fills(const std::string& kind, const std::string& text, engine::TokenId first, engine::TokenId second) {
    const engine::Tokenizer& tokenizer = tests::encoder_tokenizer(kind);
    const ReplyPlan plan = mask_plan(tokenizer, text);
    Result result;
    for (std::size_t i = 0; i < plan.texts[0].mask_positions.size(); ++i) {
        result.fills.push_back({.token = 0, .logprob = 0.0F, .top = {{first, std::log(0.75F)}, {second, std::log(0.25F)}}});
    }
    const Json body = body_of(plan, {result}, tokenizer);
    std::string lines;
    for (const Json& mask : *entry(body, 0).find("fills")->as_array()) {
        for (const Json& fill : *mask.as_array()) {
            lines += fmt::format("{} {:.2f} {}|{}\n", *fill.find("token")->as_integer(), *fill.find("score")->as_number(),
                                 *fill.find("token_str")->as_string(), *fill.find("sequence")->as_string());
        }
    }
    return lines;
}

TEST(PooledReply, FilledMasksAreThoseOfTransformers) {
    EXPECT_EQ(fills("bert_uncased", "the [MASK] reads.", 214, 1), "214 0.75 in|the in reads.\n1 0.25 [UNK]|the reads.\n");
    EXPECT_EQ(fills("bert_uncased", "a [MASK] in [MASK].", 214, 1),
              "214 0.75 in|[CLS] a in in [MASK]. [SEP]\n1 0.25 [UNK]|[CLS] a [UNK] in [MASK]. [SEP]\n"
              "214 0.75 in|[CLS] a [MASK] in in. [SEP]\n1 0.25 [UNK]|[CLS] a [MASK] in [UNK]. [SEP]\n");
    EXPECT_EQ(fills("roberta", "the<mask> reads.", 348, 309), "348 0.75  in|the in reads.\n309 0.25 on|theon reads.\n");
    EXPECT_EQ(fills("roberta", "a <mask> in<mask>.", 348, 309),
              "348 0.75  in|<s>a in in<mask>.</s>\n309 0.25 on|<s>aon in<mask>.</s>\n"
              "348 0.75  in|<s>a<mask> in in.</s>\n309 0.25 on|<s>a<mask> inon.</s>\n")
        << "RoBERTa's mask takes the space before it";
}

TEST(PooledReply, EntitiesHaveTheShapeOfTransformers) {
    ReplyPlan plan = plan_of(Endpoint::token_classify, Work::token_classify);
    const engine::Encoding encoding = *bert().encode_pair("the in", std::nullopt, std::nullopt);
    plan.texts = {{.text = "the in", .tokens = encoding.ids, .types = {}, .spans = encoding.spans}};
    const std::vector<Result> results{pooled({0, 0, 800, 0, 0, 800, 0, 0}, {"O", "B-X"})};
    EXPECT_EQ(list_of(plan, results), R"([{"index":0,"entities":[{"entity_group":"X","score":1.0,"word":"in","start":4,"end":6}]}])");
    plan.job.pooling.aggregation = schema::Aggregation::none;
    EXPECT_EQ(list_of(plan, results), R"([{"index":0,"entities":[{"entity":"B-X","score":1.0,"index":2,"word":"in","start":4,"end":6}]}])");
}

TEST(PooledReply, ScoresAreSigmoidsOfACrossEncoderOrCosinesOfEmbeddings) {
    ReplyPlan plan = plan_of(Endpoint::score, Work::score_pairs);
    EXPECT_EQ(list_of(plan, {pooled({0.0F}, {"LABEL_0"}), pooled({-800.0F}, {"LABEL_0"})}),
              R"([{"index":0,"object":"score","score":0.5},{"index":1,"object":"score","score":0.0}])");
    plan.work = Work::compare_embeddings;
    plan.pairs = {{0, 0}, {0, 1}, {1, 2}, {0, 3}};
    EXPECT_EQ(list_of(plan, {pooled({3, 4}), pooled({-4, 3}), pooled({8, -6}), pooled({0, 0})}),
              R"([{"index":0,"object":"score","score":1.0},{"index":1,"object":"score","score":0.0},)"
              R"({"index":2,"object":"score","score":-1.0},{"index":3,"object":"score","score":0.0}])");
}

TEST(PooledReply, DocumentsAreRankedByTheirScores) {
    ReplyPlan plan = plan_of(Endpoint::rerank, Work::score_pairs);
    plan.job.pooling.second_texts = {"one", "two", "three", "four"};
    const std::vector<std::string> label{"LABEL_0"};
    const std::vector<Result> results{pooled({0}, label), pooled({800}, label), pooled({0}, label), pooled({-800}, label)};
    EXPECT_EQ(
        list_of(plan, results),
        R"([{"index":1,"relevance_score":1.0,"document":{"text":"two"}},{"index":0,"relevance_score":0.5,"document":{"text":"one"}},)"
        R"({"index":2,"relevance_score":0.5,"document":{"text":"three"}},{"index":3,"relevance_score":0.0,"document":{"text":"four"}}])")
        << "equal scores keep the order of the documents";
    plan.job.pooling.top_n = 2;
    plan.job.pooling.return_documents = false;
    EXPECT_EQ(list_of(plan, results), R"([{"index":1,"relevance_score":1.0},{"index":0,"relevance_score":0.5}])");
    plan.job.pooling.top_n = 9;
    EXPECT_EQ(body_of(plan, results).find("results")->as_array()->size(), 4U);
}

std::string error_of(const ReplyPlan& plan, const std::vector<Result>& results) {
    const auto error = error_of_results(plan, results);
    return error ? text_of(*error) : "none";
}

TEST(PooledReply, AnAdaptersHeadMayTurnOutNotToFit) {
    ReplyPlan plan = plan_of(Endpoint::classify, Work::zero_shot);
    EXPECT_EQ(error_of(plan, {pooled({0, 1}, {"no", "Entailment"})}), "none");
    EXPECT_EQ(error_of(plan, {pooled({0, 1}, {"no", "yes"})}),
              "unsupported_by_model: 'choices' need a head with a label that starts with \"entail\"; this model's head has 2: no, yes");
    plan = plan_of(Endpoint::score, Work::score_pairs);
    EXPECT_EQ(error_of(plan, {pooled({0}, {"a"})}), "none");
    EXPECT_EQ(error_of(plan, {pooled({0, 1, 2, 3, 4, 5, 6, 7, 8}, {"a", "b", "c", "d", "e", "f", "g", "h", "i"})}),
              "unsupported_by_model: scores need a head with one label, or an embedding model; this model's head has 9: a, b, c, d, e, f, "
              "g, h, …");
}

// JSON has no number for them.
// Pins: an adapter that was registered before heads were known scored a prompt that it was not trained on.
TEST(PooledReply, AHeadThatWasNotRegisteredDoesNotScoreRenderedPairs) {
    ReplyPlan plan = plan_of(Endpoint::score, Work::score_pairs);
    const std::vector<Result> results = {pooled({0.5F}, {"LABEL_0"})};
    EXPECT_FALSE(error_of_results(plan, results));
    plan.renders_pairs = true;
    EXPECT_THAT(error_of_results(plan, results)->message, testing::HasSubstr("register it again"));
}

TEST(PooledReply, ValuesThatAreNotFiniteAreAnError) {
    const ReplyPlan plan = plan_of(Endpoint::embeddings, Work::embed);
    for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        EXPECT_THAT(error_of(plan, {pooled({1, 2}), pooled({1, value})}), testing::StartsWith("non_finite_logits: "));
    }
    Result filled;
    filled.fills = {{.token = 0, .logprob = 0.0F, .top = {{5, -std::numeric_limits<float>::infinity()}}}};
    EXPECT_EQ(error_of(plan_of(Endpoint::fill_mask, Work::fill_mask), {filled}), "none") << "a token may be impossible";
    filled.fills[0].top[0].logprob = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THAT(error_of(plan_of(Endpoint::fill_mask, Work::fill_mask), {filled}), testing::StartsWith("non_finite_logits: "));
}

TEST(PooledReply, BytesAreEstimatedWithinAFactorOfTwo) {
    const auto expect_close = [](ReplyPlan plan, const std::vector<Result>& results) {
        plan.places = places_of(results);
        const auto estimate = static_cast<double>(reply_bytes_of(plan, results));
        const auto real = static_cast<double>(body_of(plan, results).dump().size());
        EXPECT_LT(estimate, 2 * real);
        EXPECT_GT(estimate, real / 2);
    };
    std::vector<float> vector;
    for (int i = 1; i <= 300; ++i) vector.push_back(1.0F / static_cast<float>(i * (i % 2 == 0 ? 7 : -7)));
    ReplyPlan embeddings = plan_of(Endpoint::embeddings, Work::embed);
    expect_close(embeddings, {pooled(vector), pooled(vector)});
    embeddings.job.pooling.base64 = true;
    expect_close(embeddings, {pooled(vector), pooled(vector)});
    embeddings.job.pooling.dimensions = 100;
    expect_close(embeddings, {pooled(vector), pooled(vector)});
    expect_close(plan_of(Endpoint::classify, Work::classify), {pooled({1, 2, 3, 4}, {"a", "b", "c", "d"})});
    ReplyPlan rerank = plan_of(Endpoint::rerank, Work::score_pairs);
    rerank.job.pooling.second_texts.assign(20, std::string(200, 'x'));
    expect_close(rerank, std::vector<Result>(20, pooled({0.3F}, {"a"})));
}

}  // namespace
}  // namespace lorry::consumer
