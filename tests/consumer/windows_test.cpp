// Jobs with `stride`: long texts in windows, and one answer for each text. Vectors of entities are what transformers 5.23's
// TokenClassificationPipeline returned for the same windows and logits.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "consumer/preparer.h"
#include "consumer/reply.h"
#include "schema/codec.h"
#include "tests/support/encoder_tokenizer.h"

namespace lorry::consumer::windows {
namespace {

using engine::ModelConfig;
using engine::PoolingTask;
using engine::Result;
using schema::Json;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::int64_t model_tokens = 12;

ModelConfig config_of(std::vector<std::string> labels, PoolingTask head = PoolingTask::classify,
                      engine::ProblemType problem = engine::ProblemType::single_label) {
    ModelConfig config{.vocabulary = 10'000, .generates = false, .is_encoder = true, .token_types = 2};
    config.labels = std::make_shared<const engine::Labels>(engine::Labels{.names = std::move(labels), .problem = problem});
    config.head = head;
    return config;
}
ModelConfig embedder() {
    ModelConfig config{.vocabulary = 10'000, .generates = false, .is_encoder = true, .token_types = 2};
    config.embedder = engine::EmbedderConfig{.normalized = true, .dimensions = 3, .prompts = {{"query", "in in "}}, .default_prompt = {}};
    return config;
}

Expected<PreparedJob, RefusedJob> prepare(const ModelConfig& config, const std::string& kind, const std::string& url,
                                          const std::string& members) {
    const std::string line = fmt::format(R"({{"custom_id":"a","url":"{}","body":{{"model":"base",{}}}}})", url, members);
    auto job = schema::parse_job({.source = {}, .key = {}, .value = line, .headers = {}, .timestamp = {}}, {});
    CHECK(job.has_value(), "the test's job is good");
    const Preparer preparer(tests::encoder_tokenizer(kind), std::nullopt, config, {.context_max = model_tokens});
    return preparer.prepare(std::move(*job), {.kind = ModelName::Kind::base});
}
PreparedJob prepared(const ModelConfig& config, const std::string& url, const std::string& members) {
    auto job = prepare(config, "bert_cased", url, members);
    CHECK(job.has_value(), "the job can run");
    return std::move(*job);
}
std::string refusal(const ModelConfig& config, const std::string& url, const std::string& members) {
    const auto job = prepare(config, "bert_cased", url, members);
    if (job) return "accepted";
    const schema::JobError& error = job.error().error;
    return fmt::format("{} {} {}: {}", error.status_code(), name_of(error.code), error.param, error.message);
}

// "0: [CLS] a b [SEP] 2": the text's index, its tokens, the weight.
std::vector<std::string> shown(const PreparedJob& job) {
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < job.requests.size(); ++i) {
        std::vector<std::string> tokens;
        for (const auto id : job.requests[i].prompt) tokens.push_back(tests::encoder_tokenizer("bert_cased").token_spelling(id));
        lines.push_back(fmt::format("{}: {} {}", job.plan.places[i].prompt, fmt::join(tokens, " "), job.plan.places[i].weight));
    }
    return lines;
}
using Lines = std::vector<std::string>;

TEST(Windows, HoldAsManyTokensAsTheModelTakesAndShareTheStride) {
    const std::string texts = R"("input":["a b c d e f g h i j k l","a b"])";
    const PreparedJob job = prepared(embedder(), "/v1/embeddings", texts + R"(,"stride":3)");
    EXPECT_EQ(shown(job), (Lines{"0: [CLS] a b c d e f g h i j [SEP] 10", "0: [CLS] h i j k l [SEP] 2", "1: [CLS] a b [SEP] 2"}));
    EXPECT_EQ(job.plan.prompt_tokens, 12 + 7 + 4) << "all windows count";
    EXPECT_EQ(job.requests[1].token_types.size(), job.requests[1].prompt.size());
    EXPECT_EQ(shown(prepared(embedder(), "/v1/embeddings", R"("input":"a b c d e","stride":0,"truncate_prompt_tokens":5)")),
              (Lines{"0: [CLS] a b c [SEP] 3", "0: [CLS] d e [SEP] 2"}));
    EXPECT_EQ(shown(prepared(embedder(), "/v1/embeddings", R"("input":"a b c d e","stride":1,"truncate_prompt_tokens":-1)")),
              (Lines{"0: [CLS] a b c d e [SEP] 5"}));
}

TEST(Windows, EachBeginsWithTheModelsPrompt) {
    EXPECT_EQ(
        shown(prepared(embedder(), "/v1/embeddings", R"("input":"a b c d","stride":1,"prompt_name":"query","truncate_prompt_tokens":7)")),
        (Lines{"0: [CLS] in in a b c [SEP] 3", "0: [CLS] in in c d [SEP] 1"}));
}

TEST(Windows, AStrideThatDoesNotFitIsRefused) {
    EXPECT_EQ(
        refusal(embedder(), "/v1/embeddings", R"("input":["a","b"],"stride":10)"),
        "400 invalid_value stride: field 'stride' is 10, and 'input[0]' cannot be split that way: a stride of 10 tokens is too large: a "
        "window has room for 10 tokens of the text, so give at most 9");
    EXPECT_THAT(refusal(embedder(), "/v1/embeddings", R"("input":"a b","stride":2,"truncate_prompt_tokens":4)"),
                StartsWith("400 invalid_value stride: field 'stride' is 2, and 'input' cannot be split that way"));
    EXPECT_THAT(refusal(embedder(), "/v1/embeddings", R"("input":"a b","stride":2,"truncate_prompt_tokens":13)"),
                StartsWith("400 invalid_value truncate_prompt_tokens: "));
    EXPECT_EQ(refusal(embedder(), "/v1/embeddings", R"("input":[[5,6]],"stride":2)"),
              "400 invalid_value stride: field 'stride' needs texts, and 'input' has token ids");
    EXPECT_THAT(refusal(embedder(), "/v1/embeddings", R"("input":["a",""],"stride":2)"), StartsWith("400 empty_prompt input[1]"));
}

// Pins: a job could ask for a window of each of a million tokens.
TEST(Windows, AJobHasABoundedNumberOfThem) {
    std::string text;
    for (int i = 0; i < 5'000; ++i) text += "a ";
    EXPECT_EQ(prepared(embedder(), "/v1/embeddings", fmt::format(R"("input":"{}","stride":8)", text)).requests.size(), 2'496U);
    EXPECT_EQ(refusal(embedder(), "/v1/embeddings", fmt::format(R"("input":["{}","{}"],"stride":8)", text, text)),
              "400 invalid_value stride: field 'stride' is 8, and 'input[1]' cannot be split that way: the text has 2496 windows of 12 "
              "tokens, and its job has room for 1600 more: split the job, or choose a smaller stride");
}

Result result_of(std::vector<float> values, const ModelConfig& config) {
    Result result;
    result.pooled = std::move(values);
    result.labels = config.labels;
    return result;
}

Json entry_of(const PreparedJob& job, const std::vector<Result>& results, std::size_t index, const std::string& kind = "bert_cased") {
    const ReplyContext context{.tokenizer = tests::encoder_tokenizer(kind), .base_name = "tiny", .system_fingerprint = "fp"};
    const Json body = make_reply(context, job.plan, results, {}).body;
    return (*body.find("data")->as_array()).at(index);
}
std::string rounded(const Json& list) {
    std::string text;
    for (const Json& one : *list.as_array()) text += fmt::format("{}{:.6f}", text.empty() ? "" : " ", *one.as_number());
    return text;
}

// 10 tokens and 2 of their own.
constexpr const char* two_windows = R"("input":["a b c d e f g h i j k l","a b"],"stride":3)";

TEST(Windows, VectorsBecomeTheirMeanBeforeTheyAreCutAndScaled) {
    const ModelConfig config = embedder();
    const std::vector<Result> results{result_of({3, 0, 6}, config), result_of({0, 24, 6}, config), result_of({0.1F, 0.2F, 0.7F}, config)};
    PreparedJob job = prepared(config, "/v1/embeddings", std::string(two_windows) + R"(,"normalize":false)");
    EXPECT_EQ(rounded(*entry_of(job, results, 0).find("embedding")), "2.500000 4.000000 6.000000");
    EXPECT_EQ(entry_of(job, results, 1).find("embedding")->dump(), "[0.1,0.2,0.7]") << "one window is as it is";
    EXPECT_EQ(entry_of(job, results, 1).find("index")->dump(), "1");
    job.plan.job.pooling.dimensions = 2;
    job.plan.normalized = true;
    const double length = std::sqrt(2.5 * 2.5 + 16.0);
    EXPECT_EQ(rounded(*entry_of(job, results, 0).find("embedding")), fmt::format("{:.6f} {:.6f}", 2.5 / length, 4.0 / length));
}

TEST(Windows, ProbabilitiesBecomeTheirMean) {
    const float ninety = std::log(9.0F);
    ModelConfig config = config_of({"no", "yes"});
    PreparedJob job = prepared(config, "/classify", two_windows);
    const std::vector<Result> results{result_of({ninety, 0}, config), result_of({0, ninety}, config), result_of({0, 0}, config)};
    EXPECT_EQ(rounded(*entry_of(job, results, 0).find("probs")), "0.766667 0.233333");
    EXPECT_EQ(*entry_of(job, results, 0).find("label")->as_string(), "no");
    EXPECT_EQ(rounded(*entry_of(job, results, 1).find("probs")), "0.500000 0.500000");
    config = config_of({"price"}, PoolingTask::classify, engine::ProblemType::regression);
    EXPECT_EQ(rounded(*entry_of(job, {result_of({6}, config), result_of({-6}, config), result_of({1}, config)}, 0).find("probs")),
              "4.000000");
}

// A large document's answer is no larger than a small one's.
TEST(Windows, TheReplysBytesAreThoseOfOneVector) {
    const ModelConfig config = embedder();
    const PreparedJob job = prepared(config, "/v1/embeddings", two_windows);
    const PreparedJob without = prepared(config, "/v1/embeddings", R"("input":["a","a b"])");
    const Result one = result_of({1, 2, 3}, config);
    EXPECT_EQ(reply_bytes_of(job.plan, std::vector<Result>(3, one)), reply_bytes_of(without.plan, std::vector<Result>(2, one)));
}

// A formula that the vectors were made with, too.
float logit(std::size_t token, std::size_t label, std::size_t window) {
    return static_cast<float>((token * token * 3 + token * 7 + label * 5 + window * 3) % 11) * 0.5F;
}

struct Vector {
    const char* kind;
    std::int64_t max_tokens;
    std::int64_t stride;
    const char* aggregation;
    const char* entities;
};

std::string entities_of_vector(const Vector& vector) {
    const ModelConfig config = config_of({"O", "B-PER", "I-PER", "B-LOC", "I-LOC"}, PoolingTask::token_classify);
    const char* text = vector.kind == std::string_view("bert_cased") ? "naïve Ada Lovelace lived in London, wörld reading."
                                                                     : "Ada Lovelace lived in London, reading.";
    const auto job = prepare(config, vector.kind, "/token_classify",
                             fmt::format(R"("input":["a","{}"],"stride":{},"truncate_prompt_tokens":{},"aggregation_strategy":"{}")", text,
                                         vector.stride, vector.max_tokens, vector.aggregation));
    std::vector<Result> results;
    for (const engine::Request& request : job->requests) {
        std::vector<float> logits;
        const std::size_t window = results.empty() ? 0 : results.size() - 1;
        for (std::size_t token = 0; token < request.prompt.size(); ++token) {
            for (std::size_t label = 0; label < 5; ++label) logits.push_back(logit(token, label, window));
        }
        results.push_back(result_of(std::move(logits), config));
    }
    std::string lines;
    const Json entry = entry_of(*job, results, 1, vector.kind);
    for (const Json& entity : *entry.find("entities")->as_array()) {
        lines += fmt::format("{} {:.6f} '{}' {}-{}\n", *entity.find("entity_group")->as_string(), *entity.find("score")->as_number(),
                             *entity.find("word")->as_string(), entity.find("start")->dump(), entity.find("end")->dump());
    }
    return lines;
}

// clang-format off
const Vector vectors[] = {
    {"bert_cased", 12, 4, "simple",
     "PER 0.565419 'A' 6-7\n"
     "PER 0.565419 '##d' 7-8\n"
     "PER 0.573020 'L' 10-11\n"
     "PER 0.565419 '##ve' 12-14\n"
     "LOC 0.784963 '##l' 14-15\n"
     "PER 0.565419 '##c' 16-17\n"
     "PER 0.565419 '##e' 17-18\n"
     "LOC 0.809541 '##ve' 21-23\n"
     "LOC 0.809541 'in' 25-27\n"
     "PER 0.565419 'L' 28-29\n"
     "LOC 0.784963 '##on' 29-31\n"
     "PER 0.565419 '##d' 31-32\n"
     "PER 0.565419 '##on' 32-34\n"
     "LOC 0.809541 ',' 34-35\n"
     "PER 0.565419 'wörld' 36-41\n"
     "PER 0.565419 're' 42-44\n"
     "PER 0.565419 '##i' 46-47\n"
     "PER 0.565419 '.' 49-50\n"},
    {"bert_cased", 12, 4, "first",
     "PER 0.569219 'Ada Lovelac' 6-17\n"
     "PER 0.565419 '##ved' 21-24\n"
     "LOC 0.809541 'in' 25-27\n"
     "PER 0.565419 'London' 28-34\n"
     "LOC 0.809541 ',' 34-35\n"
     "PER 0.565419 'wörld' 36-41\n"
     "PER 0.565419 're' 42-44\n"
     "PER 0.565419 '.' 49-50\n"},
    {"bert_cased", 12, 4, "average",
     "PER 0.385024 'Ada' 6-9\n"
     "PER 0.348945 '##velace' 12-18\n"
     "LOC 0.599384 'lived in' 19-27\n"
     "LOC 0.631495 'London,' 28-35\n"
     "PER 0.565419 'wörld' 36-41\n"
     "PER 0.565419 're' 42-44\n"
     "PER 0.565419 '.' 49-50\n"},
    {"bert_cased", 12, 4, "max",
     "PER 0.565419 'Ada' 6-9\n"
     "LOC 0.784963 'Lovelac' 10-17\n"
     "LOC 0.809541 'lived in' 19-27\n"
     "LOC 0.797252 'London,' 28-35\n"
     "PER 0.565419 'wörld' 36-41\n"
     "PER 0.565419 'reading' 42-49\n"
     "PER 0.565419 '.' 49-50\n"},
    {"bert_cased", 9, 0, "average",
     "PER 0.386427 'Ada Love' 6-14\n"
     "PER 0.294827 '##lace' 14-18\n"
     "LOC 0.335228 'lived' 19-24\n"
     "PER 0.565419 'in' 25-27\n"
     "LOC 0.289326 'London' 28-34\n"
     "PER 0.565419 ',' 34-35\n"
     "PER 0.565419 'wörld' 36-41\n"
     "PER 0.294827 'reading' 42-49\n"},
    {"roberta", 12, 4, "simple",
     "PER 0.565419 'd' 1-2\n"
     "PER 0.565419 'a' 2-3\n"
     "PER 0.573020 'L' 4-5\n"
     "PER 0.565419 've' 6-8\n"
     "LOC 0.784963 'l' 8-9\n"
     "PER 0.565419 'c' 10-11\n"
     "PER 0.565419 'e' 11-12\n"
     "LOC 0.809541 'ive' 14-17\n"
     "LOC 0.809541 ' in' 19-21\n"
     "PER 0.565419 ' ' 22-22\n"
     "LOC 0.784963 'L' 22-23\n"
     "PER 0.565419 'o' 23-24\n"
     "PER 0.565419 'nd' 24-26\n"
     "LOC 0.809541 'on' 26-28\n"
     "PER 0.565419 ',' 28-29\n"
     "PER 0.565419 ' re' 30-32\n"
     "PER 0.565419 'i' 34-35\n"
     "PER 0.565419 '.' 37-38\n"},
    {"roberta", 12, 4, "first",
     "PER 0.573020 'Lovelac' 4-11\n"
     "PER 0.565419 'ived' 14-18\n"
     "LOC 0.809541 ' in' 19-21\n"
     "PER 0.565419 ' ' 22-22\n"
     "LOC 0.784963 'London,' 22-29\n"
     "PER 0.565419 ' re' 30-32\n"},
    {"roberta", 12, 4, "average",
     "PER 0.385024 'Ada' 0-3\n"
     "PER 0.348945 'velace' 6-12\n"
     "LOC 0.599384 ' lived in' 13-21\n"
     "PER 0.565419 ' ' 22-22\n"
     "LOC 0.376049 'London,' 22-29\n"
     "PER 0.565419 ' re' 30-32\n"},
    {"roberta", 12, 4, "max",
     "PER 0.565419 'Ada' 0-3\n"
     "LOC 0.784963 'Lovelac' 4-11\n"
     "LOC 0.809541 ' lived in' 13-21\n"
     "PER 0.565419 ' ' 22-22\n"
     "LOC 0.809541 'London,' 22-29\n"
     "PER 0.565419 ' reading.' 30-38\n"},
    {"roberta", 9, 0, "average",
     "PER 0.385024 'Ada' 0-3\n"
     "PER 0.387830 'Love' 4-8\n"
     "PER 0.294827 'lace' 8-12\n"
     "LOC 0.335228 ' lived' 13-18\n"
     "PER 0.565419 ' in' 19-21\n"
     "LOC 0.365699 'London,' 22-29\n"},
};
// clang-format on

TEST(Windows, EntitiesAreMergedAsByTransformers) {
    for (const Vector& vector : vectors) {
        EXPECT_EQ(entities_of_vector(vector), vector.entities) << vector.kind << ", " << vector.stride << ", " << vector.aggregation;
    }
}

// Pins: 4,000 windows of a text of a megabyte would take 4 gigabytes if each had all of it.
TEST(Windows, EachKeepsOnlyItsPartOfTheText) {
    const ModelConfig config = config_of({"O", "B-X"}, PoolingTask::token_classify);
    const PreparedJob job = prepared(config, "/token_classify", R"("input":"a b c d e f g h i j k l","stride":3)");
    ASSERT_EQ(job.plan.texts.size(), 2U);
    EXPECT_EQ(job.plan.texts[0].text, "a b c d e f g h i j");
    EXPECT_EQ(job.plan.texts[1].text, " h i j k l");
    EXPECT_EQ(job.plan.texts[1].window->begin, 13);
}

}  // namespace
}  // namespace lorry::consumer::windows
