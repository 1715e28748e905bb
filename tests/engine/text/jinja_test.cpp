// Chat templates are Jinja2 as Python runs it, and a hostile template ends as an error. jinja_vectors.json is made by Python's jinja2; see
// tests/data/text/make_jinja_vectors.py.
#include <chrono>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/text/chat_template.h"
#include "tests/engine/text/vectors.h"

namespace lorry::engine {
namespace {

using namespace text_vectors;
using testing::HasSubstr;

// The text of a rendering, or its error, or that of the loading, after "error: ".
std::string made_of(const std::string& source, const ChatRequest& request) {
    const ModelFolder folder;
    folder.write("chat_template.jinja", source);
    folder.write("tokenizer_config.json", R"({"bos_token":"<s>","eos_token":"</s>"})");
    try {
        const auto text = ChatTemplate::load(folder.path()).value().render(request);
        return text ? *text : "error: " + text.error();
    } catch (const std::runtime_error& error) {
        return std::string("error: ") + error.what();
    }
}

std::string made_of(const std::string& source) { return made_of(source, {.messages_json = R"([{"role":"user","content":"hi"}])"}); }

std::string repeated(std::string_view text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
}

// A loop that sets ns.x `count` times.
std::string looped(const std::string& first, const std::string& step, int count) {
    return "{% set ns = namespace(x=" + first + ") %}{% for i in range(" + std::to_string(count) + ") %}{% set ns.x = " + step +
           " %}{% endfor %}";
}

TEST(JinjaTest, ATemplateRendersAsInPythonOrFails) {
    const auto vectors = read_json(folder_of("jinja_vectors.json"));
    const ChatRequest request = {.messages_json = member(vectors, "messages").dump(), .extra_json = text(vectors, "context")};
    ASSERT_GE(list(vectors, "vectors").size(), 1600u);
    std::size_t refused = 0;
    for (const auto& vector : list(vectors, "vectors")) {
        SCOPED_TRACE(text(vector, "source"));
        const auto actual = made_of(text(vector, "source"), request);
        const bool failed = actual.starts_with("error: ");
        const auto* expected = vector.find("text");
        // A generated template may use what is refused; what it may not do is render to another text.
        if (failed && vector.find("generated") != nullptr) {
            ++refused;
        } else if (expected != nullptr) {
            EXPECT_EQ(actual, *expected->as_string());
        } else {
            EXPECT_TRUE(failed) << actual;
        }
    }
    EXPECT_LE(refused, 20u);
}

TEST(JinjaTest, NumbersOfAJobKeepTheirDigits) {
    EXPECT_EQ(made_of("{{ n }}", {.messages_json = "[]", .extra_json = R"({"n":26.128183379563694})"}), "26.128183379563694");
}

TEST(JinjaTest, NestingWithinASourceIsLimited) {
    constexpr int count = 100'000;
    for (const auto& source : {
             "{{ " + repeated("[", count) + repeated("]", count) + " }}",
             "{{ " + repeated("(", count) + "1" + repeated(")", count) + " }}",
             "{{ " + repeated("not ", count) + "x }}",
             "{{ " + repeated("-", count) + "1 }}",
             "{{ x" + repeated("|upper", count) + " }}",
             "{{ x" + repeated(" + x", count) + " }}",
             "{{ x" + repeated(" and x", count) + " }}",
             "{{ x" + repeated(" if x else x", count) + " }}",
             "{{ x" + repeated(".x", count) + " }}",
             "{{ x" + repeated("()", count) + " }}",
             repeated("{% if x %}", count),
             repeated("{% for x in y %}", count),
             "{% for " + repeated("(", count) + "x" + repeated(")", count) + " in y %}{% endfor %}",
         }) {
        EXPECT_THAT(made_of(source), HasSubstr("levels")) << source.substr(0, 30);
    }
    EXPECT_EQ(made_of("{{ 'x'" + repeated(" ~ 'x'", 3) + " }}"), "xxxx");
}

TEST(JinjaTest, AValueIsNeitherDeepNorItsOwnPart) {
    EXPECT_THAT(made_of(looped("[]", "[ns.x]", 100'000)), HasSubstr("values of more than 200 levels"));
    EXPECT_THAT(made_of(looped("[]", "{'a': ns.x}", 100'000)), HasSubstr("values of more than 200 levels"));
    EXPECT_THAT(made_of(looped("none", "cycler(ns.x)", 100'000)), HasSubstr("values of more than 200 levels"));
    EXPECT_EQ(made_of(looped("none", "namespace(before=ns.x)", 1000)), "");
    EXPECT_EQ(made_of("{% set ns = namespace() %}{% set ns.self = ns %}{{ ns.self.self is defined }}"), "True");
    EXPECT_THAT(made_of("{% set ns = namespace() %}{% set ns.self = [ns] %}{{ ns.self }}"), HasSubstr("a namespace has no text"));
    EXPECT_THAT(made_of("{% set ns = namespace() %}{% set ns.self = [ns] %}{{ ns | tojson }}"), HasSubstr("has no JSON form"));
}

TEST(JinjaTest, RecursionIsLimited) {
    for (const char* source : {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
                               "{% macro m() %}{% if 1 %}{{ [m()] | join | upper }}{% endif %}{% endmacro %}{{ m() }}",
                               "{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}"}) {
        EXPECT_THAT(made_of(source), HasSubstr("nested too deeply")) << source;
    }
}

TEST(JinjaTest, TimeAndMemoryAreLimited) {
    const auto start = std::chrono::steady_clock::now();
    const std::string large = "{% set s = 'a' * 10000000 %}{% for x in range(100000) %}{% set y = ";
    for (const auto& source : {
             looped("'x'", "ns.x ~ ns.x", 60),
             looped("'x'", "ns.x + ns.x", 60),
             looped("[1]", "ns.x + ns.x", 60),
             looped("[1]", "[ns.x, ns.x]", 60) + "{{ ns.x }}",
             looped("[1]", "[ns.x, ns.x]", 60) + "{{ ns.x | tojson }}",
             looped("[1]", "[ns.x, ns.x]", 60) + "{{ ns.x == ns.x }}",
             looped("(1,)", "(ns.x, ns.x)", 60) + "{{ {ns.x: 1} }}",
             repeated("{% for a in range(100000) %}", 3) + repeated("{% endfor %}", 3),
             std::string("{{ {'a': 1} | tojson(indent=10**13) }}"),
             std::string("{{ {'a': [[1]]} | tojson(indent=10**8) }}"),
             std::string("{{ 'x' * 10**12 }}"),
             std::string("{{ [1] * 10**12 }}"),
             std::string("{{ 9 ** 9 ** 9 }}"),
             std::string("{{ 'x' | center(10**12) }}"),
             std::string("{{ 'x'.ljust(10**9) }}"),
             std::string("{{ '%999999999d' % 1 }}"),
             std::string("{{ '{:999999999}'.format(1) }}"),
             std::string("{{ ('a' * 1000000).replace('', 'b' * 1000000) }}"),
             std::string("{{ ('a' * 1000000) | join('b' * 100000) }}"),
             std::string("{{ ('a\\n' * 1000000) | indent(1000000) }}"),
             std::string("{{ [1] | batch(10**9, 0) | list }}"),
             std::string("{{ range(10**9) }}"),
             large + "s | length %}{% endfor %}",
             large + "s.find('b') %}{% endfor %}",
             large + "s | lower %}{% endfor %}",
             large + "s == 'a' * 10000000 %}{% endfor %}",
         }) {
        EXPECT_THAT(made_of(source), testing::StartsWith("error: chat template: ")) << source;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(2));
}

TEST(JinjaTest, ErrorTextsAreCut) {
    EXPECT_EQ(made_of("{{ raise_exception('x' * 1000000) }}"), "error: " + repeated("x", 500) + "...");
    EXPECT_LT(made_of("{{ 'x'.index('y' * 1000000) }}").size(), 700u);
    EXPECT_LT(made_of("{{ " + repeated("x", 1'000'000) + ".y }}").size(), 700u);
}

TEST(JinjaTest, ATemplateThatIsNotUtf8DoesNotLoad) {
    EXPECT_THAT(made_of("\xff\xfe"), HasSubstr("chat_template.jinja is not valid UTF-8"));
}

// Without parts, the template would walk over the characters of the text and print nothing of it.
TEST(JinjaTest, ATemplateThatWalksOverPartsGetsParts) {
    const std::string walk = "{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}";
    EXPECT_EQ(made_of("{% for m in messages %}{% for p in m.content %}" + walk + "{% endfor %}"), "hi");
    EXPECT_EQ(made_of("{% for m in messages %}{% set c = m['content'] %}{% for p in c %}" + walk + "{% endfor %}"), "hi");
    EXPECT_EQ(made_of("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}" + walk +
                      "{% endif %}{% endfor %}"),
              "hi");
}

}  // namespace
}  // namespace lorry::engine
