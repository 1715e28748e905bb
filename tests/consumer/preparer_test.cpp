// Fields that a job leaves out: taken from the model's generation_config.json, otherwise from the API's defaults.
#include "consumer/preparer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>

#include "schema/codec.h"
#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/labels.h"
#include "tests/support/peak_memory.h"
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
        {R"({"json":{"type":"number","exclusiveMinimum":12345678901234567}})", "exclusiveMinimum has a number of 2^53 or more"},
        {R"({"json":{"type":"number","multipleOf":0.01}})", "multipleOf 0.01 is not supported: it is not exact in binary"},
        {R"({"json":{"type":"object","patternProperties":{"^a":{}},"minProperties":2}})", "minProperties above 1"},
        {R"({"json":{"type":"object","patternProperties":{"^\\d$":{"const":1},"^[0-9]$":{"const":2}}}})", "'^[0-9]$' is not disjoint"},
        {R"({"json":{"items":{"$id":"http://a/b"}}})", "$id within a schema is not supported"},
        {R"({"json":{"type":"string","pattern":"^\\x01$"}})", "control characters in patterns are not supported"},
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

// The text of the first prompt, and its number of tokens, with this template.
std::pair<std::string, std::size_t> prompt_of(const std::string& chat_template, const std::string& members) {
    auto job = schema::parse_job({.source = {},
                                  .key = {},
                                  .value = R"({"custom_id":"a","url":"/chat/completions","body":{"model":"base",)" + members + "}}",
                                  .headers = {},
                                  .timestamp = {}},
                                 {});
    CHECK(job.has_value(), "the codec takes the test's job");
    const tests::TempFolder folder;
    tests::write_text(folder / "chat_template.jinja", chat_template);
    engine::ModelConfig config;
    config.vocabulary = 50257;
    const Preparer preparer(tests::gpt2_tokenizer(), engine::ChatTemplate::load(folder.path()), config, {.context_max = 100});
    const auto prepared = preparer.prepare(std::move(*job), {.kind = ModelName::Kind::base});
    if (!prepared) return {schema::text_of(prepared.error().error), 0};
    return {tests::gpt2_tokenizer().decode(prepared->requests.front().prompt, false), prepared->requests.front().prompt.size()};
}

TEST(Preparer, AnAnswerCanGoOnWithTheLastMessage) {
    const std::string turns = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|endoftext|>\n{% endfor %}";
    const std::string trimming = "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}<|endoftext|>\n{% endfor %}";
    const auto goes_on = [](const std::string& content) {
        return R"("messages":[{"role":"user","content":"q"},{"role":"assistant","content":)" + content +
               R"(}],"add_generation_prompt":false,"continue_final_message":true)";
    };
    EXPECT_EQ(prompt_of(turns, goes_on(R"("It is ")")).first, "[user]q<|endoftext|>\n[assistant]It is ");
    EXPECT_EQ(prompt_of(trimming, goes_on(R"("It is ")")).first, "[user]q<|endoftext|>\n[assistant]It is");
    EXPECT_EQ(prompt_of(trimming, goes_on(R"([{"type":"text","text":"a"},{"type":"text","text":"b"}])")).first,
              "[user]q<|endoftext|>\n[assistant]a\nb");
    EXPECT_THAT(prompt_of("{{ messages[0].content }}", goes_on(R"("It is")")).first,
                testing::HasSubstr("chat_template_failed: the chat template changes the text of the last message"));
}

TEST(Preparer, APromptMayKeepItsEndOnlyAndGetSpecialTokens) {
    const std::string chat = R"("messages":[{"role":"user","content":" list depot load road"}])";
    EXPECT_EQ(prompt_of("{{ messages[0].content }}", chat).second, 4U);
    EXPECT_EQ(prompt_of("{{ messages[0].content }}", chat + R"(,"truncate_prompt_tokens":2)").first, " load road");
    EXPECT_EQ(prompt_of("{{ messages[0].content }}", chat + R"(,"truncate_prompt_tokens":-1,"max_tokens":97)").first, " depot load road");
    EXPECT_EQ(prompt_of("{{ messages[0].content }}", chat + R"(,"add_special_tokens":true)").second, 4U) << "GPT-2 adds none";
}

TEST(Preparer, WordsAreBannedAloneAndAfterASpace) {
    engine::ModelConfig config;
    config.vocabulary = 50257;
    const auto drawing = prepared(config, R"(,"bad_words":["load"," depot","lorry road"],"allowed_token_ids":null)").drawing;
    const auto allows = [&](const std::string& token) {
        const auto id = static_cast<std::size_t>(tests::gpt2_tokenizer().encode(token, false)->front());
        return (drawing->allowed[id / 32] >> (id % 32) & 1U) != 0;
    };
    EXPECT_FALSE(allows("load"));
    EXPECT_FALSE(allows(" load"));
    EXPECT_FALSE(allows("depot"));
    EXPECT_FALSE(allows(" depot"));
    EXPECT_TRUE(allows("lorry"));
    EXPECT_EQ(drawing->bad_words.size(), 2U);
    const auto some = prepared(config, R"(,"bad_words":["!"],"allowed_token_ids":[0,1,33])").drawing;
    EXPECT_EQ(some->allowed[0], 2U);
    EXPECT_EQ(some->allowed[1], 2U);
    EXPECT_THAT(prompt_of("x", R"("messages":[{"role":"user","content":"q"}],"bad_words":[" "])").first,
                testing::HasSubstr("invalid_value: a word of 'bad_words' has no tokens"));
    EXPECT_THAT(prompt_of("x", R"("messages":[{"role":"user","content":"q"}],"allowed_token_ids":[1,50257])").first,
                testing::HasSubstr("unknown_token"));
}

// What a template of this format says, what an answer that calls add and pick looks like, and one that a grammar must refuse.
struct Calls {
    const char* chat_template;
    const char* text;
    const char* wrong;
};
constexpr Calls formats[] = {
    {"<tool_call>",
     "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": -2}}\n</tool_call>\n"
     "<tool_call>\n{\"name\": \"pick\", \"arguments\": {\"of\": \"x\"}}\n</tool_call>",
     "<tool_call>\n{\"name\": \"sub\""},
    {"\"parameters\": dictionary of argument name",
     R"({"name": "add", "parameters": {"a": 1, "b": 2}}; {"name": "pick", "parameters": {"of": "y"}})",
     R"({"name": "add", "parameters": {"b")"},
    {"[TOOL_CALLS]", R"([TOOL_CALLS][{"name": "add", "arguments": {"a": 1, "b":2}}, {"name": "pick", "arguments": {}}])", "Sure"},
    {"[TOOL_CALLS][ARGS]", R"([TOOL_CALLS]add[ARGS]{"a": 1, "b": 2}[TOOL_CALLS]pick[ARGS]{})", R"([TOOL_CALLS]add[ARGS]{"a": 1})"},
    {"<|tool|>", R"(functools[{"name": "pick", "arguments": {"of": "x"}}, {"name": "add", "arguments": {"a": 1, "b": 2}}])", "functools[]"},
    {"func_name1(", R"([add(a=1, b=2), pick(of="x"), pick()])", R"([add(b=2)])"},
};
constexpr const char* tools =
    R"("tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"},)"
    R"("b":{"type":"integer"}},"required":["a","b"],"additionalProperties":false}}},{"type":"function","function":{"name":"pick",)"
    R"("parameters":{"type":"object","properties":{"of":{"enum":["x","y"]}},"additionalProperties":false}}}])";

Expected<PreparedJob, RefusedJob> prepared_calls(const std::string& chat_template, const std::string& members,
                                                 const std::string& message = R"({"role":"user","content":"q"})") {
    auto job = schema::parse_job({.source = {},
                                  .key = {},
                                  .value = R"({"custom_id":"a","url":"/chat/completions","body":{"model":"base",)"
                                           R"("messages":[)" +
                                           message + "]," + members + "}}",
                                  .headers = {},
                                  .timestamp = {}},
                                 {});
    CHECK(job.has_value(), "the codec takes the test's job");
    const tests::TempFolder folder;
    tests::write_text(folder / "chat_template.jinja", "{# " + chat_template + " #}{{ messages[0].content }}");
    engine::ModelConfig config;
    config.vocabulary = 480;
    config.eos_ids = {93};  // "~"
    const Preparer preparer(tests::gpt2_tokenizer(), engine::ChatTemplate::load(folder.path()), config, {.context_max = 100});
    const auto demand = preparer.demand(*job, {.kind = ModelName::Kind::base});
    auto prepared = preparer.prepare(std::move(*job), {.kind = ModelName::Kind::base});
    if (prepared && demand) {
        EXPECT_TRUE(demand->compiler->find(demand->structure).valid()) << "what is compiled beforehand is what is used";
    }
    return prepared;
}

// How many bytes of a text the grammar takes.
std::size_t taken_of(const engine::Grammar& grammar, const std::string& text) {
    engine::Grammar::Answer answer = grammar.begin();
    std::size_t taken = 0;
    while (taken < text.size()) {
        const auto allowed = answer.allowed();
        CHECK(allowed, "the grammar is simple");
        // Of the tokens that may come next, the longest that goes on with the text.
        std::optional<engine::TokenId> next;
        std::size_t length = 0;
        for (engine::TokenId id = 0; id < 480; ++id) {
            if (((*allowed)[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) == 0) continue;
            const std::string bytes = tests::gpt2_tokenizer().token_bytes(id);
            if (bytes.size() > length && text.compare(taken, bytes.size(), bytes) == 0) {
                next = id;
                length = bytes.size();
            }
        }
        if (!next) break;
        taken += length;
        const auto complete = answer.accept(*next);
        CHECK(complete, "the grammar is simple");
        if (*complete) break;
    }
    return taken;
}

TEST(Preparer, CallsThatAJobDemandsAreHeldToTheModelsFormatAndTheFunctionsSchemas) {
    for (const Calls& format : formats) {
        const auto job = prepared_calls(format.chat_template, std::string(tools) + R"(,"tool_choice":"required")");
        ASSERT_TRUE(job.has_value()) << format.chat_template << schema::text_of(job.error().error);
        const engine::Grammar& grammar = *job->requests.front().drawing->grammar;
        EXPECT_EQ(taken_of(grammar, format.text), std::string(format.text).size()) << format.text;
        EXPECT_LT(taken_of(grammar, format.wrong), std::string(format.wrong).size()) << format.wrong;
        AnswerReader reader(job->plan.answer);
        auto parts = reader.push(format.text);
        std::ranges::move(reader.finish().calls, std::back_inserter(parts.calls));
        EXPECT_GE(parts.calls.size(), 2U) << format.text;
        EXPECT_EQ(parts.content, "") << format.text;

        const auto one =
            prepared_calls(format.chat_template, std::string(tools) + R"(,"tool_choice":"required","parallel_tool_calls":false)");
        EXPECT_LT(taken_of(*one->requests.front().drawing->grammar, format.text), std::string(format.text).size()) << format.text;
        const auto named =
            prepared_calls(format.chat_template, std::string(tools) + R"(,"tool_choice":{"type":"function","function":{"name":"pick"}})");
        const auto place = std::string(format.text).find("add");
        if (std::string(format.text).find("pick") > place) {
            EXPECT_EQ(taken_of(*named->requests.front().drawing->grammar, format.text), place) << format.text;
        }
    }
}

TEST(Preparer, CallsCannotBeDemandedWithoutAFormatOrOfASchemaThatCannotBeKept) {
    const std::string required = R"(,"tool_choice":"required")";
    const auto refusal = [&](const std::string& chat_template, const std::string& members) {
        const auto job = prepared_calls(chat_template, members);
        return job ? std::string("none") : schema::text_of(job.error().error) + " @" + job.error().error.param;
    };
    EXPECT_THAT(refusal("", tools), testing::HasSubstr("no place for tools")) << "auto";
    EXPECT_THAT(refusal("", tools + required), testing::HasSubstr("unsupported_by_model: this model's chat template shows no format"));
    const auto one = [](const std::string& parameters) {
        return R"("tools":[{"type":"function","function":{"name":"f","parameters":)" + parameters + "}}]";
    };
    EXPECT_THAT(refusal("<tool_call>", one(R"({"properties":{"a":{"$ref":"http://x/y"}}})") + required),
                testing::AllOf(testing::HasSubstr("invalid_structure"), testing::EndsWith("@tools")));
    EXPECT_EQ(refusal("<tool_call>", one("{}") + required), "none");
    EXPECT_THAT(refusal("func_name1(", one(R"({"properties":{"a b":{}}})") + required), testing::HasSubstr("the argument 'a b'"));
}

TEST(Preparer, ThePromptSaysWhetherAThoughtIsOpen) {
    using engine::ThoughtState;
    const auto state = [&](const std::string& end) {
        const auto job = prepared_calls("</think> #}{{ '" + end + "' }}{% set messages = [{'content': ''}] %}{#", R"("n":1)");
        return job->plan.answer.begin;
    };
    EXPECT_EQ(state("x"), ThoughtState::undecided);
    EXPECT_EQ(state("<think>\\n"), ThoughtState::thinking);
    EXPECT_EQ(state("<think>\\n\\n</think>\\n\\n"), ThoughtState::answering);
    // Pins: a message that only mentions the mark made a thought of the answer, so that no structure applied to it.
    const auto state_within = [](const std::string& content) {
        const auto job = prepared_calls("</think>", R"("add_generation_prompt":false,"continue_final_message":true)",
                                        R"({"role":"assistant","content":")" + content + R"("})");
        return job->plan.answer.begin;
    };
    EXPECT_EQ(state_within("The tag <think> opens a thought."), ThoughtState::answering);
    EXPECT_EQ(state_within("Hm."), ThoughtState::answering);
    EXPECT_EQ(state_within(" <think>Hm."), ThoughtState::thinking);
    EXPECT_EQ(state_within("<think>Hm.</think>"), ThoughtState::answering);
    EXPECT_EQ(state_within("<think>Hm.</think>It is <think>"), ThoughtState::answering);
    EXPECT_THAT(schema::text_of(prepared_calls("", R"("thinking_token_budget":5)").error().error),
                testing::HasSubstr("unsupported_by_model: this model has no thoughts"));
    EXPECT_EQ(prepared_calls("</think>", R"("thinking_token_budget":5)")->requests.front().drawing->thinking->budget, 5);
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

// They are taken, or refused for their size: with bounded memory and a bounded stack, either way.
TEST(Preparer, HostileStructuresTakeBoundedMemory) {
    const long before = tests::peak_memory();
    std::string chain;
    std::string rules = "start: r0";
    for (int i = 0; i < 4'900; ++i) chain += fmt::format(R"("d{}":{{"anyOf":[{{"$ref":"#/$defs/d{}"}},{{"type":"null"}}]}},)", i, i + 1);
    std::string described;  // a schema of nearly a megabyte
    for (int i = 0; i < 240; ++i) described += fmt::format(R"("p{}":{{"type":"string","description":"{}"}},)", i, std::string(3'500, 'd'));
    std::string listed = "\"no\"";  // each another
    for (int i = 0; i < 100'000; ++i) listed += fmt::format(R"(,"{}")", i);
    EXPECT_THAT(refusal_of(R"({"choice":[)" + listed + "]}"),
                testing::EndsWith("it is too large: it lists too many texts, patterns or rules; give fewer, or shorter ones"));
    for (int i = 0; i < 990; ++i) rules += fmt::format(R"(\nr{}: r{} \"a\")", i, i + 1);
    for (const std::string& structure :
         {R"({"json":{"$ref":"#/$defs/d0","$defs":{)" + chain + R"("d4900":{"const":1}}}})",
          R"({"grammar":")" + rules + R"(\nr990: \"b\""})", R"({"json":{"type":"integer","multipleOf":997}})"s,
          R"({"grammar":"start: a a a a a a a a a a a a b\na: b? b? b? b?\nb: a? /[a-z ]/?"})"s,
          std::string(R"({"regex":"(a|b)*a(a|b){60}"})"), std::string(R"({"regex":"(?:[a-z]{1,1000}){1,1000}"})"),
          std::string(R"({"json":{"type":"string","pattern":"^(a+)+(b+)+(c|d|e){50,100}$"}})"),
          std::string(R"({"json":{"type":"array","items":{"type":"integer"},"minItems":100000,"maxItems":100000}})"),
          R"({"json":)" + repeated(R"({"type":"array","items":)", 90) + "{}" + repeated("}", 90) + "}",
          R"({"choice":[)" + repeated("\"yes\",", 100'000) + R"("no"]})",
          R"({"json":{"type":"object","properties":{)" + described + R"("z":{}},"additionalProperties":false}})"}) {
        EXPECT_THAT(refusal_of(structure), testing::AnyOf("", testing::HasSubstr("too"), testing::HasSubstr("items")))
            << structure.substr(0, 200);
    }
    EXPECT_LT(tests::peak_memory() - before, 400 << 10) << "KiB; one takes 200 MB at most";
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

schema::Job job_of(const std::string& url, const std::string& members) {
    const std::string line = R"({"custom_id":"a","url":")" + url + R"(","body":{"model":"base",)" + members + "}}";
    auto job = schema::parse_job({.source = {}, .key = {}, .value = line, .headers = {}, .timestamp = {}}, {});
    CHECK(job.has_value(), "the test's job is good");
    return std::move(*job);
}

// The token that begins a text was cut off with the text's own beginning.
TEST(Preparer, ATextOfWhichTheEndIsKeptKeepsItsSpecialTokens) {
    const auto tokenizer = engine::Tokenizer::load(std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data/text/llama2");
    engine::ModelConfig config;
    config.vocabulary = static_cast<std::int64_t>(tokenizer.vocabulary_size());
    const Preparer preparer(tokenizer, std::nullopt, config, {.context_max = 100});
    const auto tokens_of = [&](const std::string& members) {
        const auto prepared = preparer.prepare(job_of("/v1/completions", members), {.kind = ModelName::Kind::base});
        CHECK(prepared.has_value(), "the test's job is good");
        return prepared->requests.front().prompt;
    };
    const std::string text = R"("prompt":"one two three four five")";
    const auto whole = tokens_of(text);
    ASSERT_GT(whole.size(), 3U);
    EXPECT_EQ(tokens_of(text + R"(,"truncate_prompt_tokens":3)"), (std::vector{whole[0], whole[whole.size() - 2], whole.back()}));
    EXPECT_EQ(tokens_of(text + R"(,"truncate_prompt_tokens":-1)"), whole);
    const std::vector<engine::TokenId> end{whole[whole.size() - 3], whole[whole.size() - 2], whole.back()};
    EXPECT_EQ(tokens_of(text + R"(,"truncate_prompt_tokens":3,"add_special_tokens":false)"), end);
}

TEST(Preparer, ToolsThatTheChatTemplateLeavesOutAreRefused) {
    const std::string messages = R"("messages":[{"role":"user","content":"q"}],)";
    const std::string given = R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";
    engine::ModelConfig config;
    config.vocabulary = 50257;
    const auto refusal_with = [&](const std::string& text, const std::string& members) {
        const tests::TempFolder folder;
        tests::write_text(folder / "chat_template.jinja", text);
        const Preparer preparer(tests::gpt2_tokenizer(), engine::ChatTemplate::load(folder.path()), config, {.context_max = 100});
        const auto prepared = preparer.prepare(job_of("/v1/chat/completions", messages + members), {.kind = ModelName::Kind::base});
        return prepared ? "none" : prepared.error().error.param + ": " + prepared.error().error.message;
    };
    const std::string bare = "{{ messages[0].content }}";
    EXPECT_THAT(refusal_with(bare, given), testing::HasSubstr("tools: this model's chat template has no place for tools"));
    EXPECT_EQ(refusal_with(bare, given + R"(,"tool_choice":"none")"), "none");
    EXPECT_EQ(refusal_with(bare + "{{ tools | length }}", given), "none");
}

// Pins: of a chat, the list of a prompt's log-probabilities is in the result once, and of a completion in each choice.
TEST(Preparer, APromptsLogProbabilitiesAreComputedOnceAndWeighWhatTheResultRepeats) {
    const auto weight = [](const char* url, const std::string& members) {
        engine::ModelConfig config;
        config.vocabulary = 50257;
        const tests::TempFolder folder;
        tests::write_text(folder / "chat_template.jinja", "{{ messages[0].content }}");
        const Preparer preparer(tests::gpt2_tokenizer(), engine::ChatTemplate::load(folder.path()), config, {.context_max = 100});
        return preparer.tokenize(job_of(url, members), {.kind = ModelName::Kind::base})->weight.bytes;
    };
    const std::string text = R"("prompt":[1,2,3,4,5,6,7,8],"max_tokens":1,"n":)";
    const std::string chat = R"("messages":[{"role":"user","content":"one two three four five six"}],"max_tokens":1,"n":)";
    const auto list = [&](const char* url, const std::string& members, int n) {
        const std::string job = members + std::to_string(n);
        return weight(url, job + R"(,"prompt_logprobs":20)") - weight(url, job);
    };
    EXPECT_GT(list("/v1/completions", text, 10), 8 * list("/v1/completions", text, 1));
    EXPECT_EQ(list("/v1/chat/completions", chat, 10), list("/v1/chat/completions", chat, 1));
    EXPECT_GT(list("/v1/chat/completions", chat, 1), 6 * 21 * reply_prompt_logprob_bytes * reply_memory_factor);

    const engine::Request scored = prepared(config_with_defaults(), R"(,"echo":true,"logprobs":2,"prompt_logprobs":5)");
    EXPECT_EQ(scored.score_begin, 0);
    EXPECT_EQ(scored.score_top, 5);
    EXPECT_TRUE(scored.score_ranks);
    EXPECT_FALSE(prepared(config_with_defaults(), R"(,"echo":true,"logprobs":2)").score_ranks);
    EXPECT_EQ(prepared(config_with_defaults(), R"(,"logprobs":2)").score_begin, std::nullopt);
    EXPECT_EQ(prepared(config_with_defaults(), R"(,"prompt_logprobs":0,"max_tokens":0)", true).score_begin, 0);
}

// Each grammar weighed 1 MB and each of its answers 250 kB, whatever they take: up to 32 MB.
TEST(Preparer, AStructureWeighsWhatItsGrammarAndItsAnswersTake) {
    engine::ModelConfig config;
    config.vocabulary = 480;
    config.eos_ids = {93};
    const Preparer preparer(tests::gpt2_tokenizer(), std::nullopt, config, {.context_max = 100});
    const auto bytes_of = [&](std::size_t letters, int n) {
        const std::string regex = R"("prompt":[1],"structured_outputs":{"regex":")" + std::string(letters, 'a') + R"("},"n":)";
        return preparer.tokenize(job_of("/v1/completions", regex + std::to_string(n)), {.kind = ModelName::Kind::base})->weight.bytes;
    };
    EXPECT_LT(bytes_of(5, 1), 1'000'000);
    EXPECT_GT(bytes_of(10'000, 1), 2'000'000);
    EXPECT_GT(bytes_of(10'000, 10), bytes_of(10'000, 1) + 9 * 1'000'000);
}

// The limit of memory is the process's, so it runs in one of its own.
TEST(Preparer, AJobForWhichThereIsNoMemoryFailsAlone) {
    engine::ModelConfig config;
    config.vocabulary = 50257;
    const Preparer preparer(tests::gpt2_tokenizer(), std::nullopt, config, {.context_max = 100});
    EXPECT_EXIT(
        {
            schema::Job large = job_of("/v1/completions", R"("prompt":[1,2,3])");
            large.prompt = std::vector<schema::TextPrompt>{std::vector<std::int32_t>(50'000'000, 1)};
            schema::Job small = job_of("/v1/completions", R"("prompt":[1,2,3])");
            rlimit limit{};
            getrlimit(RLIMIT_AS, &limit);
            limit.rlim_cur = 1;  // what is mapped stays
            setrlimit(RLIMIT_AS, &limit);
            const auto refused = preparer.tokenize(std::move(large), {.kind = ModelName::Kind::base});
            const auto taken = preparer.tokenize(std::move(small), {.kind = ModelName::Kind::base});
            const bool fails_alone =
                !refused && refused.error().error.code == schema::ErrorCode::job_too_large && refused.error().job.custom_id == "a" && taken;
            std::exit(fails_alone ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
}
const tests::Labelled limits_memory{"Preparer.AJobForWhichThereIsNoMemoryFailsAlone:Preparer.HostileStructuresTakeBoundedMemory",
                                    {tests::Label::not_asan, tests::Label::not_tsan}};

}  // namespace
}  // namespace lorry::consumer
