// Fields that a job leaves out: taken from the model's generation_config.json, otherwise from the API's defaults.
#include "consumer/preparer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schema/codec.h"
#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/temp_folder.h"

namespace lorry::consumer {
namespace {

using namespace std::string_literals;

// The first request of a job whose body has these additional members.
engine::Request prepared(const engine::ModelConfig& config, const std::string& members, bool is_chat = false) {
    const std::string prompt = is_chat ? R"("messages":[{"role":"user","content":"hello"}])" : R"("prompt":[1,2,3])";
    const std::string line = R"({"custom_id":"a","url":")" + std::string(is_chat ? "/v1/chat/completions" : "/v1/completions") +
                             R"(","body":{"model":"base",)" + prompt + members + "}}";
    auto job = schema::parse_job({.source = {}, .key = {}, .value = line, .headers = {}, .timestamp = {}}, {});
    CHECK(job.has_value(), "the test's job is good");
    const tests::TempFolder folder;
    tests::write_text(folder / "chat_template.jinja", "{{ messages[0].content }}");
    const Preparer preparer(tests::gpt2_tokenizer(), engine::ChatTemplate::load(folder.path()), config, {.context_max = 100});
    return preparer.prepare(std::move(*job), {.kind = ModelName::Kind::base})->requests.front();
}

engine::ModelConfig config_with_defaults() {
    engine::ModelConfig config;
    config.vocabulary = 50257;
    config.sampling_defaults.temperature = 0.6;
    config.sampling_defaults.top_p = 0.9;
    config.sampling_defaults.top_k = 20;
    config.sampling_defaults.min_p = 0.05;
    config.sampling_defaults.repetition_penalty = 1.05;
    config.max_new_tokens = 30;
    return config;
}

// Why a job with this structure is refused; empty: it is not.
std::string refusal_of(const std::string& structure) {
    engine::ModelConfig config;
    config.vocabulary = 480;
    config.eos_ids = {93};
    auto job = schema::parse_job(
        {.source = {},
         .key = {},
         .value =
             R"({"custom_id":"a","url":"/v1/completions","body":{"model":"base","prompt":[1],"structured_outputs":)" + structure + "}}",
         .headers = {},
         .timestamp = {}},
        {});
    CHECK(job.has_value(), "the codec takes the test's job");
    const Preparer preparer(tests::gpt2_tokenizer(), std::nullopt, config, {.context_max = 100});
    const auto prepared = preparer.prepare(std::move(*job), {.kind = ModelName::Kind::base});
    if (prepared) return {};
    EXPECT_EQ(prepared.error().error.code, schema::ErrorCode::invalid_structure);
    EXPECT_TRUE(prepared.error().error.param.starts_with("structured_outputs.")) << prepared.error().error.param;
    return prepared.error().error.message;
}

std::string repeated(std::string_view text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
}

TEST(Preparer, AStructureThatNoAnswerCanBeHeldToIsRefusedWithItsReason) {
    std::string properties;
    for (int i = 0; i < 20'000; ++i) properties += '"' + std::to_string(i) + R"(":{"type":"string"},)";
    const std::pair<std::string, std::string> cases[] = {
        {R"({"json":{"type":"strin"}})", "field 'structured_outputs.json' cannot be used: Invalid type: strin"},
        {R"({"json":{"type":"object","not":{"type":"null"}}})", R"(Unimplemented keys: ["not"])"},
        {R"({"json":{"$ref":"https://example.org/s.json"}})",
         "Only absolute $ref's (#/...) are supported; ref 'https://example.org/s.json'"},
        {R"({"json":{"$ref":"#/$defs/none"}})", "'$defs' not found"},
        {R"({"json":{"$ref":"#"}})", "nothing matches it"},
        {R"({"json":{"type":"integer","minimum":5,"maximum":3}})", "Unsatisfiable schema: minimum (5) is greater than maximum (3)"},
        {R"({"json":{"type":"object","properties":{"a":false},"required":["a"]}})", "Unsatisfiable schema"},
        {R"({"json":{"x-guidance":{"whitespace_flexible":true}}})", "the schema may not have the key x-guidance"},
        {R"({"json":{"const":-9223372036854775808}})", "const has a number of 2^53 or more"},
        {R"({"json":{"enum":[1,[{"a":12345678901234567890123}]]}})", "enum has a number of 2^53 or more"},
        {R"({"json":{"type":"integer","minimum":-1e300,"maximum":-1e299}})", "minimum has a number of 2^53 or more"},
        {R"({"json":{"type":"integer","multipleOf":999983}})", "multipleOf, without its decimal point"},
        {R"({"json":{"allOf":[{"type":"integer","multipleOf":97},{"multipleOf":89}]}})", "together with those of allOf"},
        {R"({"json":{"type":"number","exclusiveMinimum":10,"maximum":10.5}})", "exclusive bounds of numbers between 10 and 10.5"},
        {R"({"json":{"type":"object","patternProperties":{"^a":{}},"minProperties":2}})", "minProperties above 1"},
        {R"({"json":{"type":"object","patternProperties":{"^\\d$":{"const":1},"^[0-9]$":{"const":2}}}})", "'^[0-9]$' is not disjoint"},
        {R"({"json":{"items":{"$id":"http://a/b"}}})", "$id within a schema is not supported"},
        {R"({"json":{"type":"string","pattern":"^[\\x00-\\x1f]$"}})", "control characters in patterns are not supported"},
        {R"({"grammar":"start: %json {\"const\":1}"})", "%json is not supported in a grammar"},
        {R"({"json":"{"})", "the schema is not JSON"},
        {R"({"json":"7"})", "a schema is a JSON object"},
        {R"({"json":{"properties":{)" + properties + R"("z":{}}}})", "the schema is too large: an object has 20001 properties"},
        {R"({"regex":"(a"})", "unclosed group"},
        {R"({"regex":"(?=a)b"})", "look-around"},
        {R"({"regex":"[a&&b]"})", "nothing matches it"},
        {R"({"grammar":"start: foo"})", "unknown name: \"foo\""},
        {R"({"grammar":"start: \"a\" <|endoftext|>"})", "the grammar names tokens"},
        {R"({"grammar":"start: /[<]/ // <\n | \"<\" <[7]>"})", "the grammar names tokens"},
        {R"({"grammar":"start = 1"})", "Expected token ':', found '='"},
        {R"({"grammar":"start: a\na: b\nb: a"})", "nothing matches it"},
    };
    for (const auto& [structure, reason] : cases)
        EXPECT_THAT(refusal_of(structure), testing::HasSubstr(reason)) << structure.substr(0, 200);
}

TEST(Preparer, WhereAGrammarLetsAnAnswerEndAnEndTokenEndsItAlsoWithIgnoreEos) {
    engine::ModelConfig config = config_with_defaults();
    config.eos_ids = {93};
    EXPECT_THAT(prepared(config, R"(,"ignore_eos":true)").drawing->end_tokens, testing::IsEmpty());
    const engine::Request request = prepared(config, R"(,"ignore_eos":true,"structured_outputs":{"grammar":"start: \"<\" /[<]/ # <\n"})");
    EXPECT_NE(request.drawing->grammar, nullptr);
    EXPECT_THAT(request.drawing->end_tokens, testing::ElementsAre(93));
}

// Longrope's frequencies follow from it, so that another KV cache gives no other answer.
TEST(Preparer, WhatMayBeDrawnDoesNotDependOnTheRoomThatThereIs) {
    engine::ModelConfig config = config_with_defaults();
    EXPECT_EQ(prepared(config, "").tokens_allowed, 16);
    EXPECT_EQ(prepared(config, R"(,"max_tokens":50)").tokens_allowed, 50);
    EXPECT_EQ(prepared(config, "", true).tokens_allowed, 30);
    config.max_new_tokens = 5000;
    EXPECT_EQ(prepared(config, "", true).tokens_allowed, 5000);
    EXPECT_LT(prepared(config, "", true).max_tokens, 100);
    config.max_new_tokens.reset();
    EXPECT_GT(prepared(config, "", true).tokens_allowed, 1'000'000);
}

// They are taken, or refused for their size: in bounded time and with a bounded stack, either way.
TEST(Preparer, HostileStructuresEndInBoundedTime) {
    std::string chain;
    std::string rules = "start: r0";
    for (int i = 0; i < 4'900; ++i) chain += fmt::format(R"("d{}":{{"anyOf":[{{"$ref":"#/$defs/d{}"}},{{"type":"null"}}]}},)", i, i + 1);
    for (int i = 0; i < 990; ++i) rules += fmt::format(R"(\nr{}: r{} \"a\")", i, i + 1);
    for (const std::string& structure :
         {R"({"json":{"$ref":"#/$defs/d0","$defs":{)" + chain + R"("d4900":{"const":1}}}})",
          R"({"grammar":")" + rules + R"(\nr990: \"b\""})", R"({"json":{"type":"integer","multipleOf":997}})"s,
          R"({"grammar":"start: a a a a a a a a a a a a b\na: b? b? b? b?\nb: a? /[a-z ]/?"})"s,
          std::string(R"({"regex":"(a|b)*a(a|b){60}"})"), std::string(R"({"regex":"(?:[a-z]{1,1000}){1,1000}"})"),
          std::string(R"({"json":{"type":"string","pattern":"^(a+)+(b+)+(c|d|e){50,100}$"}})"),
          std::string(R"({"json":{"type":"array","items":{"type":"integer"},"minItems":100000,"maxItems":100000}})"),
          R"({"json":)" + repeated(R"({"type":"array","items":)", 90) + "{}" + repeated("}", 90) + "}",
          R"({"choice":[)" + repeated("\"yes\",", 100'000) + R"("no"]})"}) {
        EXPECT_THAT(refusal_of(structure), testing::AnyOf("", testing::HasSubstr("too"), testing::HasSubstr("items")))
            << structure.substr(0, 200);
    }
}

TEST(Preparer, FieldsThatAJobLeavesOutAreTheModels) {
    const engine::Request request = prepared(config_with_defaults(), "");
    EXPECT_EQ(request.drawing->sampling.temperature, 0.6);
    EXPECT_EQ(request.drawing->sampling.top_p, 0.9);
    EXPECT_EQ(request.drawing->sampling.top_k, 20);
    EXPECT_EQ(request.drawing->sampling.min_p, 0.05);
    EXPECT_EQ(request.drawing->sampling.repetition_penalty, 1.05);
}

TEST(Preparer, FieldsThatAJobGivesWinAlsoWithTheirNeutralValues) {
    const engine::Request request =
        prepared(config_with_defaults(), R"(,"temperature":0,"top_p":1,"top_k":-1,"min_p":0,"repetition_penalty":1,"max_tokens":50)");
    EXPECT_EQ(request.drawing->sampling.temperature, 0.0);
    EXPECT_EQ(request.drawing->sampling.top_p, 1.0);
    EXPECT_EQ(request.drawing->sampling.top_k, 0);
    EXPECT_EQ(request.drawing->sampling.min_p, 0.0);
    EXPECT_EQ(request.drawing->sampling.repetition_penalty, 1.0);
    EXPECT_EQ(request.max_tokens, 50) << "max_new_tokens is a default, not a limit";
}

TEST(Preparer, AnAnswersLengthIsTheEndpointsDefaultOrTheModelsAndFitsTheContext) {
    engine::ModelConfig config = config_with_defaults();
    EXPECT_EQ(prepared(config, "").max_tokens, 16);
    EXPECT_EQ(prepared(config, "", true).max_tokens, 30);
    config.max_new_tokens = 4;
    EXPECT_EQ(prepared(config, "").max_tokens, 4);
    config.max_new_tokens = 4000;
    const engine::Request longest = prepared(config, "", true);
    EXPECT_EQ(longest.max_tokens, 100 - static_cast<std::int64_t>(longest.prompt.size()));
    config.max_new_tokens.reset();
    EXPECT_EQ(prepared(config, "", true).max_tokens, longest.max_tokens);
    EXPECT_FALSE(prepared(engine::ModelConfig{.vocabulary = 50257}, "").drawing->sampling.temperature);
}

// Pins: 20 prompts of a megabyte were tokenized, one after the other, before each was refused; no other job was read for ten seconds.
TEST(Preparer, ATextThatIsFarTooLongIsRefusedWithoutBeingTokenized) {
    engine::ModelConfig config = config_with_defaults();
    const Preparer preparer(tests::gpt2_tokenizer(), std::nullopt, config, {.context_max = 100});
    const auto message_for = [&](std::size_t bytes) {
        schema::Job job{.custom_id = "a", .id = "a", .endpoint = schema::Endpoint::completions, .model = "base"};
        job.prompt = std::vector<schema::TextPrompt>{std::string(bytes, ' ')};
        return preparer.prepare(std::move(job), {.kind = ModelName::Kind::base}).error().error.message;
    };
    EXPECT_EQ(message_for(101 * 128), "this model takes 100 tokens; a text of 12928 bytes has more: shorten it");
    EXPECT_NE(message_for(101 * 128 - 1).find("the prompt has "), std::string::npos) << "counted";
}

}  // namespace
}  // namespace lorry::consumer
