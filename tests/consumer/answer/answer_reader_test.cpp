// What models write in each format of calls and thoughts, and how it is divided: as a whole and in pieces of any size.
#include "consumer/answer/answer_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/chat_template.h"
#include "schema/check.h"
#include "schema/json.h"
#include "tests/support/labels.h"

namespace lorry::consumer {
namespace {

// No other thread takes part.
const tests::Labelled answers_without_tsan{"*", {tests::Label::not_tsan}};

using engine::ThoughtState;

AnswerPlan plan_of(const std::string& calls, const std::string& thoughts = "none", ThoughtState begin = ThoughtState::undecided) {
    return {
        .thought = thought_format_of(thoughts, ""), .begin = begin, .calls = call_format_of(calls, ""), .names = {"get_weather", "add"}};
}

// "reasoning | content | name {arguments}", the text read in pieces of so many bytes.
std::string read(const AnswerPlan& plan, const std::string& text, std::size_t piece) {
    AnswerReader reader(plan);
    std::string reasoning;
    std::string content;
    std::string calls;
    const auto take = [&](const AnswerReader::Parts& parts) {
        reasoning += parts.reasoning;
        content += parts.content;
        for (const FunctionCall& call : parts.calls) calls += (calls.empty() ? "" : " ") + call.name + call.arguments;
    };
    for (std::size_t at = 0; at < text.size(); at += piece) take(reader.push(text.substr(at, piece)));
    take(reader.finish());
    return reasoning + "|" + content + "|" + calls;
}

void expect_read(const AnswerPlan& plan, const std::string& text, const std::string& expected) {
    for (const std::size_t piece : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}, text.size() + 1}) {
        EXPECT_EQ(read(plan, text, piece), expected) << text << " in pieces of " << piece;
    }
}

struct Vector {
    const char* format;
    const char* text;
    const char* expected;
};

TEST(AnswerReader, CallsOfEachFormatAreFoundAndWhatDoesNotParseStaysContent) {
    const Vector vectors[] = {
        {"hermes", "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [2, \"x}\"]}}\n</tool_call>",
         R"(||add{"a":1,"b":[2,"x}"]})"},
        {"hermes",
         "Let me see.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n"
         "{\"arguments\": {\"city\": \"Kraków\"}, \"name\": \"get_weather\"}\n</tool_call>\n",
         "|Let me see.\n|add{} get_weather{\"city\":\"Kraków\"}"},
        {"hermes", "<tool_call>{\"name\":\"add\"}", "||add{}"},
        {"hermes", "<tool_call>{\"name\":\"add\"}</tool_call> and then", "| and then|add{}"},
        // Pins: a stream lost white space in the text after a call, depending on where its pieces began.
        {"hermes", "<tool_call>{\"name\":\"add\"}</tool_call>\n one  two \n\n three \n", "|\n one  two \n\n three|add{}"},
        {"hermes", "<tool_call>{\"name\":\"add\"}</tool_call> so \n<tool_call>{\"name\":\"add\"}</tool_call>\n", "| so|add{} add{}"},
        {"hermes", "<tool_call>{\"name\":\"unknown\",\"arguments\":{}}</tool_call>",
         "|<tool_call>{\"name\":\"unknown\",\"arguments\":{}}</tool_call>|"},
        {"hermes", "<tool_call>{\"name\":\"add\",\"arguments\":7}</tool_call>",
         "|<tool_call>{\"name\":\"add\",\"arguments\":7}</tool_call>|"},
        {"hermes", R"(<tool_call>{"name":"add","parameters":{"a":1}}</tool_call>)", R"(||add{"a":1})"},
        {"hermes", R"(<tool_call>{"name":"add","a":1}</tool_call>)", R"(|<tool_call>{"name":"add","a":1}</tool_call>|)"},
        {"hermes", R"(<tool_call>{"name":"add","arguments":{},"parameters":{"a":1}}</tool_call>)",
         R"(|<tool_call>{"name":"add","arguments":{},"parameters":{"a":1}}</tool_call>|)"},
        {"hermes", "<tool_call>{\"name\":\"add\",\"argu", "|<tool_call>{\"name\":\"add\",\"argu|"},
        {"hermes", "<tool_call>no json</tool_call><tool_call>{\"name\":\"add\"}</tool_call>", "|<tool_call>no json</tool_call>|add{}"},
        {"hermes", "  1 < 2 <tool", "|  1 < 2 <tool|"},
        {"hermes", " \n", "| \n|"},
        {"llama3_json", R"({"name": "get_weather", "parameters": {"city": "Rome"}})", R"(||get_weather{"city":"Rome"})"},
        {"llama3_json", R"(<|python_tag|>{"name": "add", "parameters": {"a": 1}}; {"name": "add", "parameters": {"a": 2}})",
         R"(||add{"a":1} add{"a":2})"},
        {"llama3_json", R"({"name": "Ada", "born": 1815})", R"(|{"name": "Ada", "born": 1815}|)"},
        {"llama3_json", R"({"name": "add", "arguments": {"a": 1}, "parameters": null})", R"(||add{"a":1})"},
        {"llama3_json", R"({"type": "function", "id": "1", "name": "add", "arguments": {"a": 1}})", R"(||add{"a":1})"},
        {"llama3_json", R"({"name": "add", "born": 1815})", R"(|{"name": "add", "born": 1815}|)"},
        {"llama3_json", R"(It is {"name": "add", "parameters": {}})", R"(|It is {"name": "add", "parameters": {}}|)"},
        {"llama3_json", "<|python_tag|>print(1)", "|<|python_tag|>print(1)|"},
        {"llama3_json", R"({"name": "add", "parameters": {}}; and)", R"(|; and|add{})"},
        {"mistral", R"([TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}, {"name": "add", "arguments": {}}])", R"(||add{"a":1} add{})"},
        {"mistral", R"([TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, {"name": "no", "arguments": {}}])",
         R"(|[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, {"name": "no", "arguments": {}}]|)"},
        {"mistral", R"([TOOL_CALLS][{"name": "add", "parameters": {"a": 1}, "id": "123456789"}])", R"(||add{"a":1})"},
        {"mistral", R"([TOOL_CALLS][{"name": "add", "a": 1}])", R"(|[TOOL_CALLS][{"name": "add", "a": 1}]|)"},
        {"mistral_args", R"([TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]get_weather{"city": "Rome"})",
         R"(||add{"a":1} get_weather{"city":"Rome"})"},
        {"mistral_args", R"([TOOL_CALLS]add[CALL_ID]abc123def[ARGS]{"a": 1}[TOOL_CALLS]add[CALL_ID]x1[ARGS]{})", R"(||add{"a":1} add{})"},
        {"mistral_args", "[TOOL_CALLS]add[CALL_ID]abc123def", "|[TOOL_CALLS]add[CALL_ID]abc123def|"},
        {"mistral_args", "[TOOL_CALLS]nothing", "|[TOOL_CALLS]nothing|"},
        {"phi4_mini_json", R"(functools[{"name": "add", "arguments": {"a": 1}}])", R"(||add{"a":1})"},
        {"phi4_mini_json", R"(functools[{"name": "add", "parameters": {"a": 1}}])", R"(||add{"a":1})"},
        {"phi4_mini_json", R"(functools[{"name": "add", "a": 1}])", R"(|functools[{"name": "add", "a": 1}]|)"},
        {"phi4_mini_json", R"(<|tool_call|>[{"name": "add", "arguments": {}}]<|/tool_call|>)", R"(||add{})"},
        {"phi4_mini_json", "Python's functools has reduce", "|Python's functools has reduce|"},
        {"pythonic", R"([add(a=1, b=-2.5e3), get_weather(city='Rome\'s "C"', days=[1, {"x": None}], dry=True, wet=false)])",
         R"(||add{"a":1,"b":-2.5e3} get_weather{"city":"Rome's \"C\"","days":[1,{"x":null}],"dry":true,"wet":false})"},
        {"pythonic", "[add(a='x\ty\nz')]", R"(||add{"a":"x\ty\nz"})"},
        {"pythonic", "[add()]", "||add{}"},
        {"pythonic", "<|python_start|>[add()]<|python_end|>", "||add{}"},
        {"pythonic", "[1, 2, 3]", "|[1, 2, 3]|"},
        {"pythonic", "[add(a=[1,", "|[add(a=[1,|"},
        {"none", "<tool_call>{\"name\":\"add\"}</tool_call>", "|<tool_call>{\"name\":\"add\"}</tool_call>|"},
    };
    std::set<std::string> seen{"none", "harmony"};  // of messages: harmony_answer_test.cpp
    for (const Vector& vector : vectors) {
        seen.insert(vector.format);
        expect_read(plan_of(vector.format), vector.text, vector.expected);
    }
    for (const CallFormat& format : call_formats()) EXPECT_TRUE(seen.contains(std::string(format.name))) << format.name;
}

TEST(AnswerReader, AThoughtIsDividedFromTheAnswerAndItsCalls) {
    const AnswerPlan plan = plan_of("hermes", "think");
    expect_read(plan, "<think>\nI could <b>call</b> it.\n\n</think>\n\nYes: 1", "I could <b>call</b> it.|Yes: 1|");
    expect_read(plan, "<think>Use <tool_call>{\"name\":\"add\"}</tool_call>?</think>\n<tool_call>{\"name\":\"add\"}</tool_call>",
                "Use <tool_call>{\"name\":\"add\"}</tool_call>?||add{}");
    expect_read(plan, "\n <think>cut off </thin", "cut off </thin||");
    expect_read(plan, "<think>\n\n</think>\n\nNo thought", "|No thought|");
    expect_read(plan, "  plain <think>x</think>", "|  plain <think>x</think>|");
    expect_read(plan, "<thin", "|<thin|");
    expect_read(plan_of("none", "think", ThoughtState::thinking), "Hm.\n</think>Ja", "Hm.|Ja|");
    // Pins: of the choices " yes" and " no", "yes" arrived.
    AnswerPlan structured = plan_of("none", "think");
    structured.is_structured = true;
    expect_read(structured, "<think>\nHm.\n</think> \nyes", "Hm.| \nyes|");
    expect_read(structured, "<think>Hm.</think>\n", "Hm.|\n|");
    expect_read(structured, "\nyes", "|\nyes|");
    expect_read(plan_of("none", "think", ThoughtState::answering), "<think>a</think>", "|<think>a</think>|");
    expect_read(plan_of("none", "granite"), "Here is my thought process: a b\n\nHere is my response:\nc", "a b|c|");
    expect_read(plan_of("none", "mistral"), "[THINK]a[/THINK]b", "a|b|");
    expect_read(plan_of("none", "seed_oss"), "<seed:think>a</seed:think>b", "a|b|");
}

TEST(AnswerReader, WithoutParallelCallsWhatFollowsTheFirstIsContent) {
    AnswerPlan plan = plan_of("hermes");
    plan.parallel = false;
    const std::string call = "<tool_call>{\"name\":\"add\"}</tool_call>";
    expect_read(plan, call + call, "|" + call + "|add{}");
}

TEST(AnswerReader, ALongCallThatNeverEndsCostsNoMoreThanItsLength) {
    const AnswerPlan plan = plan_of("hermes");
    AnswerReader reader(plan);
    reader.push("<tool_call>{\"name\":\"");
    for (int i = 0; i < 300'000; ++i) reader.push("}}}}");
    EXPECT_EQ(reader.finish().content.size(), 1'200'000U + 20U);
}

TEST(AnswerFormats, ATemplateShowsItsFormat) {
    const std::pair<const char*, const char*> calls[] = {
        {"return {\"name\": ...} within <tool_call></tool_call> XML tags", "hermes"},
        {"<tool_call>\n<function=name>", ""},
        {"Respond in the format {\"name\": function name, \"parameters\": dictionary of argument name and its value}.", "llama3_json"},
        {"[func_name1(params_name1=params_value1)]", "pythonic"},
        {"{{ '[TOOL_CALLS]' }}", "mistral"},
        {"[TOOL_CALLS]' + name + '[ARGS]", "mistral_args"},
        {"<|tool|>{{ tools }}<|/tool|>", "phi4_mini_json"},
        {"{{ '<|start|>assistant to=functions.' + name + '<|channel|>commentary json<|message|>' }}", "harmony"},
        {"{{ messages[0].content }}", ""}};
    for (const auto& [text, name] : calls) {
        const CallFormat* format = call_format_of("auto", text);
        EXPECT_EQ(format == nullptr ? "" : format->name, name) << text;
        EXPECT_EQ(call_format_of("none", text), nullptr);
    }
    EXPECT_EQ(thought_format_of("auto", "content.split('</think>')[-1]")->name, "think");
    EXPECT_EQ(thought_format_of("auto", "'<|channel|>analysis<|message|>' + message.thinking + '<|end|>'")->name, "harmony");
    EXPECT_EQ(thought_format_of("auto", "'<|user|>' + message.content + '<|end|>'"), nullptr);
    EXPECT_EQ(thought_format_of("auto", "no thoughts"), nullptr);
    EXPECT_EQ(thought_format_of("granite", "")->marks.end, "Here is my response:");
}

TEST(AnswerFormats, PublishedTemplatesShowTheirs) {
    struct Published {
        const char* folder;
        const char* calls;
        const char* thoughts;
    };
    const std::filesystem::path deps = std::filesystem::path(LORRY_SOURCE_DIR) / ".deps";
    for (const Published& model : {Published{"tokenizers/llama3_2", "llama3_json", ""}, Published{"tokenizers/mistral_nemo", "mistral", ""},
                                   Published{"tokenizers/qwen3", "hermes", "think"}, Published{"tokenizers/gemma3", "", ""},
                                   Published{"templates/gptoss", "harmony", "harmony"}}) {
        SCOPED_TRACE(model.folder);
        if (!std::filesystem::exists(deps / model.folder)) GTEST_SKIP() << "it is not there; ops/setup --tests downloads it";
        const std::string source = engine::ChatTemplate::load(deps / model.folder).value().source();
        const CallFormat* const calls = call_format_of("auto", source);
        const ThoughtFormat* const thoughts = thought_format_of("auto", source);
        EXPECT_EQ(calls == nullptr ? "" : calls->name, model.calls);
        EXPECT_EQ(thoughts == nullptr ? "" : thoughts->name, model.thoughts);
    }
}

TEST(AnswerFormats, IdsOfCallsAreTheSameForTheSameJobAndDifferOtherwise) {
    const CallFormat& hermes = *call_format_of("hermes", "");
    EXPECT_EQ(call_id(hermes, "chatcmpl-1", 0, 0), call_id(hermes, "chatcmpl-1", 0, 0));
    EXPECT_NE(call_id(hermes, "chatcmpl-1", 0, 0), call_id(hermes, "chatcmpl-1", 0, 1));
    EXPECT_NE(call_id(hermes, "chatcmpl-1", 0, 0), call_id(hermes, "chatcmpl-1", 1, 0));
    EXPECT_NE(call_id(hermes, "chatcmpl-1", 0, 0), call_id(hermes, "chatcmpl-2", 0, 0));
    EXPECT_EQ(call_id(hermes, "a", 0, 0).size(), 29U);
    EXPECT_EQ(call_id(*call_format_of("mistral", ""), "a", 0, 0).size(), 9U) << "templates of Mistral take no other length";
}

// What an answer costs grows with its length alone. Each mark looked through all that follows it, so that these took minutes.
TEST(AnswerReader, AnswersOfManyMarksThatNoCallFollowsAreReadInOnePass) {
    const auto times = [](const std::string& text, std::size_t count) {
        std::string repeated;
        for (std::size_t i = 0; i < count; ++i) repeated += text;
        return repeated;
    };
    constexpr std::size_t count = 300'000;
    const std::vector<std::pair<std::string, std::string>> cases{{"hermes", "<tool_call>"},
                                                                 {"hermes", "<tool_call>{"},
                                                                 {"hermes", "<tool_call>{\"a\":"},
                                                                 {"hermes", "<tool_call>{\"a\":\""},
                                                                 {"hermes", "<tool_call>{\"a\":[{},"},
                                                                 {"mistral", "[TOOL_CALLS][\""},
                                                                 {"mistral_args", "[TOOL_CALLS]add{"},
                                                                 {"phi4_mini_json", "functools["},
                                                                 {"phi4_mini_json", "functools[1, "},
                                                                 {"phi4_mini_json", "functools"},
                                                                 {"pythonic", "<|python_tag|>[add(a='"},
                                                                 {"llama3_json", "<|python_tag|>{\"a\": "}};
    for (const auto& [format, part] : cases) {
        const std::string text = "x" + times(part, count);
        EXPECT_EQ(read(plan_of(format), text, text.size() / 3), "|" + text + "|") << format << ' ' << part;
    }
    // A thought of nothing but white space, in small pieces.
    const std::string space = times(" ", count);
    EXPECT_EQ(read(plan_of("none", "think"), "<think>a" + space + "</think>b", 2), "a|b|");
    EXPECT_EQ(read(plan_of("none", "think"), space + "<think>" + space, 2), "||");
}

// A call is found in a text that a mark begins in vain.
TEST(AnswerReader, ACallAfterAMarkThatNeverEndedIsFound) {
    expect_read(plan_of("hermes"),
                R"(<tool_call>{"name": <tool_call>{"name": "add", "arguments": {"a": 1e5, "b": [-2.5, true, null]}}</tool_call>)",
                R"(|<tool_call>{"name": |add{"a":1e5,"b":[-2.5,true,null]})");
}

}  // namespace
}  // namespace lorry::consumer
