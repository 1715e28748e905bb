// ChatTemplate renders what transformers renders; also where its files are found, and its errors.
#include <ctime>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/text/chat_template.h"
#include "schema/codec_prompt.h"
#include "tests/engine/text/vectors.h"
#include "tests/support/labels.h"

namespace lorry::engine {
namespace {

// No other thread takes part.
const tests::Labelled templates_without_tsan{"*", {tests::Label::not_tsan}};

using namespace text_vectors;
using testing::HasSubstr;
using testing::MatchesRegex;

constexpr const char* config = R"({"bos_token":"<s>","eos_token":{"content":"</s>","special":true},"pad_token":null})";
constexpr const char* one_message = R"([{"role":"user","content":"hi"}])";

// A folder with this chat template and special tokens <s> and </s>.
std::optional<ChatTemplate> load_source(const std::string& source) {
    const ModelFolder folder;
    folder.write("chat_template.jinja", source);
    folder.write("tokenizer_config.json", config);
    return ChatTemplate::load(folder.path());
}

std::string rendered(const ChatTemplate& chat_template, const ChatRequest& request) {
    const auto text = chat_template.render(request);
    return text ? *text : "error: " + text.error();
}

std::string rendered(const std::string& source, const ChatRequest& request = {.messages_json = one_message}) {
    return rendered(load_source(source).value(), request);
}

std::string load_error(const ModelFolder& folder) {
    try {
        ChatTemplate::load(folder.path());
        return "loaded";
    } catch (const std::runtime_error& error) {
        return error.what();
    }
}

TEST(ChatTemplateTest, RendersAsTransformersDoes) {
    const auto data = folder_of("");
    const auto vectors = read_json(data / "chat_vectors.json");
    ASSERT_GE(vectors.as_array()->size(), 20u);
    for (const auto& entry : *vectors.as_array()) {
        SCOPED_TRACE(text(entry, "template") + ": " + text(entry, "name"));
        const auto chat_template = load_source(read(data / "templates" / (text(entry, "template") + ".jinja")));
        const auto* add = entry.find("add_generation_prompt");
        const auto actual = chat_template.value().render({.messages_json = dump_of(entry, "messages"),
                                                          .tools_json = dump_of(entry, "tools"),
                                                          .add_generation_prompt = add == nullptr || *add->as_bool(),
                                                          .extra_json = dump_of(entry, "extra")});
        if (const auto* error = entry.find("error")) {
            EXPECT_EQ(actual ? *actual : actual.error(), *error->as_string());
        } else {
            EXPECT_EQ(actual ? *actual : "error: " + actual.error(), text(entry, "text"));
        }
    }
}

// Pins: null members were rendered as None or took the branch of a tool call, and a developer's message was dropped.
TEST(ChatTemplateTest, MessagesOfOpenAisApiRenderAsInVllm) {
    const auto data = folder_of("");
    const auto vectors = read_json(data / "vllm_vectors.json");
    ASSERT_GE(vectors.as_array()->size(), 250u);
    for (const auto& entry : *vectors.as_array()) {
        SCOPED_TRACE(text(entry, "template") + ": " + text(entry, "name"));
        const auto chat_template = load_source(read(data / "templates" / (text(entry, "template") + ".jinja")));
        const auto messages = schema::read_messages(member(entry, "messages"));
        ASSERT_TRUE(messages.has_value()) << messages.error().message;
        EXPECT_EQ(rendered(chat_template.value(), {.messages_json = messages->json}), text(entry, "text"));
    }
}

// Where vLLM loses a text, because the template takes its characters for parts.
TEST(ChatTemplateTest, ATemplateThatTakesOnlyPartsGetsAllTextsAsParts) {
    const ChatRequest chat{.messages_json = R"([{"role":"developer","content":"a"},{"role":"user","content":"b"},)"
                                            R"({"role":"tool","content":"c"},{"role":"system","content":[{"type":"text","text":"d"}]}])"};
    const std::string walk = "{% for p in m.content | list %}{{ p.text }}{% endfor %};";
    EXPECT_EQ(rendered("{% for m in messages %}{{ m.role }} " + walk + "{% endfor %}", chat), "system a\n\nd;user b;tool c;");
    // A test of another value says nothing about contents.
    EXPECT_EQ(rendered("{% for m in messages if m.role is string %}" + walk + "{% endfor %}", chat), "a\n\nd;b;c;");
    EXPECT_EQ(
        rendered("{% for m in messages %}{% if m.role == 'tool' %}{{ m.content }}{% else %}" + walk + "{% endif %}{% endfor %}", chat),
        "a\n\nd;b;c");
}

TEST(ChatTemplateTest, ATemplateThatTakesTextsAndPartsGetsWhatTheClientSent) {
    const std::string source =
        "{% for m in messages %}{% if m.content is string %}text {{ m.content }};{% else %}"
        "{% for p in m.content %}part {{ p.text }};{% endfor %}{% endif %}{% endfor %}";
    EXPECT_EQ(rendered(source, {.messages_json = R"([{"content":"a"},{"content":[{"type":"text","text":"b"},{"type":"text","text":"c"}]},)"
                                                 R"({"role":"tool","content":[{"type":"text","text":"d"}]},{"content":null}])"}),
              "text a;part b;part c;text d;text ;");
}

// Pins: any test of a content made the template one for both, and its walk lost the user's text.
TEST(ChatTemplateTest, ATemplateTakesTextsAndPartsOnlyIfNoTextReachesItsWalk) {
    const ChatRequest chat{.messages_json = R"([{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"}]}])"};
    const auto walk = [](const std::string& items) { return "{% for p in " + items + " %}<{{ p.text }}>{% endfor %}"; };
    const auto each = [&](const std::string& body) { return rendered("{% for m in messages %}" + body + "{% endfor %}", chat); };
    const std::string parts_only = "<a><b>";
    const std::string both = "a<b>";
    const std::string content = "{{ m.content }}";
    EXPECT_EQ(each("{% if m.content is not string and true %}" + walk("m['content']") + "{% else %}" + content + "{% endif %}"), both);
    EXPECT_EQ(each("{% if m.content is string or false %}" + content + "{% elif m.content %}" + walk("m.content") + "{% endif %}"), both);
    EXPECT_EQ(each("{% set c = m.get('content') %}{% if c is string %}{{ c }}{% else %}" + walk("c") + "{% endif %}"), both);
    EXPECT_EQ(each("{% if m.content is sequence %}" + walk("m.content") + "{% endif %}"), parts_only);
    EXPECT_EQ(each("{% if m.content is iterable and m.content is not mapping %}" + walk("m.content") + "{% endif %}"), parts_only);
    EXPECT_EQ(each("{% if m.content is string or m.role == 'user' %}" + walk("m.content") + "{% endif %}"), parts_only);
    EXPECT_EQ(each("{% if m.role == 'tool' and m.content is string %}{% else %}" + walk("m.content") + "{% endif %}"), parts_only);
    EXPECT_EQ(each("{% if m.content is not string %}{% endif %}" + walk("m.content or []")), parts_only);
    EXPECT_EQ(each("{% with c = m.content if m.content else [] %}" + walk("c[:9]") + "{% endwith %}"), parts_only);
}

// Pins: a macro's parameter was a content only if it was named so.
TEST(ChatTemplateTest, AMacrosParameterIsAContentWhereACallPassesOne) {
    const ChatRequest chat{.messages_json = R"([{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"}]}])"};
    const auto each = [&](const std::string& macros, const std::string& call) {
        return rendered(macros + "{% for m in messages %}{{ " + call + " }}{% endfor %}", chat);
    };
    const std::string walk = "{% for p in c %}<{{ p.text }}>{% endfor %}{% endmacro %}";
    EXPECT_EQ(each("{% macro show(c) %}" + walk, "show(m.content)"), "<a><b>");
    EXPECT_EQ(each("{% macro show(role, c) %}" + walk, "show(m.role, c=m.content)"), "<a><b>");
    EXPECT_EQ(each("{% macro outer(x) %}{{ show(x) }}{% endmacro %}{% macro show(c) %}" + walk, "outer(m['content'])"), "<a><b>");
    EXPECT_EQ(each("{% macro show(c) %}{% if c is string %}{{ c }}{% else %}{% for p in c %}<{{ p.text }}>{% endfor %}{% endif %}"
                   "{% endmacro %}",
                   "show(m.content)"),
              "a<b>");
    // These walk over something else, so that the template takes texts.
    EXPECT_EQ(each("{% macro show(c) %}" + walk, "show([]) ~ m.content"), "ab");
    EXPECT_EQ(each("{% macro show(content) %}{% for p in content %}{% endfor %}{% endmacro %}", "show([]) ~ m.content"), "ab");
    EXPECT_EQ(each("{% macro one(c) %}{{ c }}{% endmacro %}{% macro other(c) %}" + walk, "one(m.content) ~ other([])"), "ab");
}

TEST(ChatTemplateTest, NumbersOf64BitsKeepTheirDigits) {
    EXPECT_EQ(rendered("{{ tools | tojson }} {{ id }} {{ messages[0].calls[0].id + 1 }}",
                       {.messages_json = R"([{"calls":[{"id":18446744073709551615}]}])",
                        .tools_json = R"([{"maximum":18446744073709551615}])",
                        .extra_json = R"({"id":18446744073709551614})"}),
              R"([{"maximum": 18446744073709551615}] 18446744073709551614 18446744073709551616)");
}

TEST(ChatTemplateTest, StrftimeNowIsLocalTime) {
    const auto today = [] {
        const auto now = std::time(nullptr);
        std::tm calendar{};
        localtime_r(&now, &calendar);
        char buffer[64];
        return std::string(buffer, std::strftime(buffer, sizeof buffer, "%d %b %Y, %A", &calendar));
    };
    const auto source = "{{ strftime_now('%d %b %Y, %A') }}";
    const auto before = today();
    const auto actual = rendered(source);
    // Midnight may pass during the test.
    EXPECT_TRUE(actual == before || actual == today()) << actual;
    EXPECT_THAT(rendered("{{ strftime_now('%H:%M:%S.%f') }}"), MatchesRegex("[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{6}"));
}

TEST(ChatTemplateTest, TheJinjaFileComesFirstThenTheJsonFileThenTheConfig) {
    const ModelFolder folder;
    EXPECT_FALSE(ChatTemplate::load(folder.path()).has_value());
    folder.write("tokenizer_config.json", R"({"chat_template":"config {{ bos_token }}","bos_token":"<s>"})");
    EXPECT_EQ(rendered(ChatTemplate::load(folder.path()).value(), {.messages_json = one_message}), "config <s>");
    folder.write("chat_template.json", R"({"chat_template":"json {{ bos_token }}"})");
    EXPECT_EQ(rendered(ChatTemplate::load(folder.path()).value(), {.messages_json = one_message}), "json <s>");
    folder.write("chat_template.jinja", "jinja {{ bos_token }}\n");
    EXPECT_EQ(rendered(ChatTemplate::load(folder.path()).value(), {.messages_json = one_message}), "jinja <s>");
    folder.write("additional_chat_templates/tool_use.jinja", "tools {{ tools | length }}");
    const auto both = ChatTemplate::load(folder.path()).value();
    EXPECT_EQ(rendered(both, {.messages_json = one_message}), "jinja <s>");
    EXPECT_EQ(rendered(both, {.messages_json = one_message, .tools_json = "[{},{}]"}), "tools 2");
}

TEST(ChatTemplateTest, NamedTemplatesServeRequestsWithAndWithoutTools) {
    const ModelFolder folder;
    folder.write("tokenizer_config.json", R"({"chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"},)"
                                          R"({"name":"rag","template":"{% unheard %}"}]})");
    const auto named = ChatTemplate::load(folder.path()).value();
    EXPECT_EQ(rendered(named, {.messages_json = one_message}), "D");
    EXPECT_EQ(rendered(named, {.messages_json = one_message, .tools_json = "[]"}), "T");

    folder.write("tokenizer_config.json", R"({"chat_template":[{"name":"tool_use","template":"T"}]})");
    const auto tools_only = ChatTemplate::load(folder.path()).value();
    EXPECT_EQ(rendered(tools_only, {.messages_json = one_message, .tools_json = "[{}]"}), "T");
    EXPECT_THAT(rendered(tools_only, {.messages_json = one_message}), HasSubstr("error: the model has a chat template for tools only"));
}

TEST(ChatTemplateTest, OldCheckpointsKeepSpecialTokensInAFileOfTheirOwn) {
    const ModelFolder folder;
    folder.write("chat_template.jinja", "{{ bos_token }}{{ eos_token }}");
    folder.write("tokenizer_config.json", R"({"eos_token":"</s>"})");
    folder.write("special_tokens_map.json", R"({"bos_token":{"content":"<old>"}})");
    EXPECT_EQ(rendered(ChatTemplate::load(folder.path()).value(), {.messages_json = one_message}), "<old></s>");
    folder.write("tokenizer_config.json", R"({"eos_token":"</s>","added_tokens_decoder":{}})");
    EXPECT_EQ(rendered(ChatTemplate::load(folder.path()).value(), {.messages_json = one_message}), "</s>");
}

TEST(ChatTemplateTest, ABrokenTemplateIsNamedWithItsLine) {
    const ModelFolder folder;
    folder.write("chat_template.jinja", "fine\n{% if x %}\n{{ x\n");
    EXPECT_THAT(load_error(folder), MatchesRegex(".*chat_template[.]jinja cannot be used: chat template: syntax error.*default:[34].*"));
    folder.write("chat_template.jinja", "{% unheard %}");
    EXPECT_THAT(load_error(folder), HasSubstr("unheard"));
}

TEST(ChatTemplateTest, ATemplateCutOffAnywhereIsAnErrorNotAPanic) {
    const ModelFolder folder;
    for (const char* source :
         {"{{", "{{ 'é", "{%", "{%-", "{% generation %}x", "{% endgeneration %}", "{% raw %}", "{% raw %}{% generation %}"}) {
        folder.write("chat_template.jinja", source);
        EXPECT_THAT(load_error(folder), HasSubstr("cannot be used: chat template: syntax error")) << source;
    }
}

TEST(ChatTemplateTest, BrokenConfigFilesAreNamed) {
    const ModelFolder folder;
    folder.write("tokenizer_config.json", "{");
    EXPECT_THAT(load_error(folder), HasSubstr("tokenizer_config.json is not valid JSON"));
    folder.write("tokenizer_config.json", "[]");
    EXPECT_THAT(load_error(folder), HasSubstr("tokenizer_config.json must hold a JSON object, not array"));
    folder.write("tokenizer_config.json", R"({"chat_template":7})");
    EXPECT_THAT(load_error(folder), HasSubstr("chat_template must be a string or a list, not integer"));
    folder.write("tokenizer_config.json", R"({"chat_template":[{"name":"default"}]})");
    EXPECT_THAT(load_error(folder), HasSubstr("needs the strings \"name\" and \"template\""));
}

TEST(ChatTemplateTest, AJobsMistakesAreItsErrors) {
    const auto echo = load_source("{{ messages[0].content }}{{ word }}").value();
    EXPECT_THAT(rendered(echo, {.messages_json = "{"}), HasSubstr("error: messages: not JSON"));
    EXPECT_EQ(rendered(echo, {.messages_json = "{}"}), "error: messages must be a list, not an object");
    EXPECT_EQ(rendered(echo, {.messages_json = "[1]"}), "error: messages[0] must be an object, not a number");
    EXPECT_EQ(rendered(echo, {.messages_json = "[{\"content\":\"\xff\"}]"}), "error: messages is not valid UTF-8 at byte 13");
    EXPECT_EQ(rendered(echo, {.messages_json = one_message, .tools_json = "1"}), "error: tools must be a list, not a number");
    EXPECT_EQ(rendered(echo, {.messages_json = one_message, .extra_json = "[]"}),
              "error: chat_template_kwargs must be an object, not a list");
    EXPECT_EQ(rendered(echo, {.messages_json = one_message, .extra_json = R"({"messages":[]})"}),
              "error: chat_template_kwargs: messages cannot be set here; use the field of that name");
    EXPECT_EQ(rendered(echo, {.messages_json = one_message, .extra_json = R"({"word":" there"})"}), "hi there");
    EXPECT_THAT(rendered(echo, {.messages_json = std::string(100'000, '[')}), HasSubstr("error: messages: not JSON: recursion limit"));
}

TEST(ChatTemplateTest, WhatATemplateCannotDoIsAnErrorWithItsLine) {
    EXPECT_THAT(rendered("\n{{ missing.attribute }}"), HasSubstr("error: chat template: undefined value"));
    EXPECT_THAT(rendered("\n\n{{ messages[0].content.unheard() }}"), HasSubstr("default:3"));
    EXPECT_THAT(rendered("{{ missing | tojson }}"), HasSubstr("tojson: missing is not defined"));
    EXPECT_THAT(rendered("{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}"), HasSubstr("error: chat template: "));
    EXPECT_EQ(rendered("{% macro m() %}{{ raise_exception('no ' ~ 1) }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}"),
              "error: no 1");
}

TEST(ChatTemplateTest, ANulInContentIsKept) {
    EXPECT_EQ(rendered("{{ messages[0].content }}", {.messages_json = "[{\"content\":\"a\\u0000b\"}]"}), std::string("a\0b", 3));
}

}  // namespace
}  // namespace lorry::engine
