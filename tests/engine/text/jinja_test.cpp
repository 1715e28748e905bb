// Chat templates are Jinja2 as Python runs it, and a hostile template ends as an error. jinja_vectors.json is made by Python's jinja2; see
// tests/data/text/make_jinja_vectors.py.
#include <chrono>
#include <functional>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include "engine/text/chat_template.h"
#include "tests/engine/text/vectors.h"
#include "tests/support/labels.h"
#include "tests/support/peak_memory.h"

namespace lorry::engine {
namespace {

// Templates are rendered by one thread, in code that the sanitizer does not see.
const tests::Labelled jinja_without_tsan{"JinjaTest.*", {tests::Label::not_tsan}};
// The address sanitizer keeps freed memory and makes each allocation slow.
const tests::Labelled jinja_limits_without_asan{"JinjaTest.MemoryOf*:JinjaTest.Time*", {tests::Label::not_asan}};

using namespace text_vectors;
using testing::AnyOf;
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

// Runs `work` in a thread with 1.5 MiB of stack.
std::string on_small_stack(std::function<std::string()> work) {
    struct Task {
        std::function<std::string()> work;
        std::string result;
    } task{.work = std::move(work), .result = {}};
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 3 << 19);
    pthread_t thread{};
    const auto run = [](void* pointer) -> void* {
        auto& own = *static_cast<Task*>(pointer);
        own.result = own.work();
        return nullptr;
    };
    EXPECT_EQ(pthread_create(&thread, &attributes, run, &task), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    return task.result;
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
    EXPECT_LE(refused, 40u);
}

TEST(JinjaTest, NumbersOfAJobKeepTheirDigitsOrAreRefused) {
    const auto made_with = [](const std::string& number) {
        return made_of("{{ n }} {{ [n] | tojson }}", {.messages_json = "[]", .extra_json = "{\"s\":\"\\\"1\",\"n\":" + number + "}"});
    };
    EXPECT_EQ(made_with("26.128183379563694"), "26.128183379563694 [26.128183379563694]");
    EXPECT_EQ(made_with("18446744073709551615"), "18446744073709551615 [18446744073709551615]");
    EXPECT_EQ(made_with("-9223372036854775808"), "-9223372036854775808 [-9223372036854775808]");
    EXPECT_EQ(made_with("-0"), "0 [0]");
    EXPECT_EQ(made_with("-0.0"), "-0.0 [-0.0]");
    EXPECT_EQ(made_with("1E2"), "100.0 [100.0]");
    for (const char* large : {"18446744073709551616", "-9223372036854775809", "123456789012345678901234567890"}) {
        EXPECT_EQ(made_with(large), std::string("error: chat_template_kwargs: the integer ") + large + " has more than 64 bits");
    }
}

TEST(JinjaTest, NestingWithinASourceIsLimited) {
    constexpr int count = 20'000;
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

// Each template ends with an error before it takes a GiB.
void expect_limited_memory(const std::vector<std::string>& sources) {
    const auto before = tests::peak_memory();
    for (const std::string& source : sources)
        EXPECT_THAT(made_of(source), AnyOf(HasSubstr("MiB of text and lists"), HasSubstr("steps"))) << source;
    EXPECT_LT(tests::peak_memory() - before, 1 << 20) << "KiB";
}

// What one expression makes without a loop of the template.
TEST(JinjaTest, MemoryOfTextsIsLimited) {
    expect_limited_memory({
        "{% set t = ('a' * 1000000,) * 4000 %}{{ ('%s' * 4000) % t }}",
        "{{ ('%s' * 4000) | format(*(['a' * 1000000] * 4000)) }}",
        "{{ ('{0}' * 4000).format('a' * 1000000) }}",
        "{{ ('<' * 60000000) | escape }}",
        "{{ (('<' * 100000000) ~ '') + ('x' | safe) }}",
        "{{ ('\\x01' * 60000000) | tojson }}",
        "{{ [['\\x01' * 60000000]] }}",
        "{{ ('é' * 60000000) | urlencode }}",
    });
}

TEST(JinjaTest, MemoryOfListsIsLimited) {
    expect_limited_memory({
        "{{ (['A' * 1000000] * 5000) | sort | length }}",
        "{{ ('\\n' * 60000000).splitlines() | length }}",
        "{{ ('a' * 60000000).split('a') | length }}",
        "{{ ('a' * 10000000) | list | length }}",
        "{% set t = (0,) * 900 %}{{ dict.fromkeys(dict.fromkeys(range(100000), t).items(), 1) | length }}",
        "{{ ('a' * 10000000) | batch(1) | list | length }}",
    });
}

// Values that a template keeps.
TEST(JinjaTest, MemoryOfKeptValuesIsLimited) {
    const std::string retained =
        "{% set ns = namespace(x=[]) %}{% set s = 'a' * 10000000 %}{% for i in range(1000) %}{% set ns.x = ns.x + [";
    expect_limited_memory({
        retained + "s.partition('q')] %}{% endfor %}",
        retained + "s.removeprefix('q')] %}{% endfor %}",
        retained + "s.split('q')] %}{% endfor %}",
        retained + "s.strip()] %}{% endfor %}",
        retained + "s.expandtabs()] %}{% endfor %}",
        retained + "s[1:]] %}{% endfor %}",
        retained + "s | safe | upper] %}{% endfor %}",
        repeated("{% for a in range(3000) %}", 2) + "{% macro m() %}{% endmacro %}" + repeated("{% endfor %}", 2),
        repeated("{% for a in range(3000) %}", 2) + "{% set x = namespace(a=1, b=2) %}" + repeated("{% endfor %}", 2),
        std::string("{% macro m() %}{{ varargs | length }}{% endmacro %}{% set t = (1,) * 200000 %}{% for i in range(1000) %}") +
            "{% set x = m(*t) %}{% endfor %}",
    });
}

// Operations whose time is that of the texts and lists they read.
TEST(JinjaTest, TimeOfMethodsAndComparisonsIsLimited) {
    const std::string fast = "{% for i in range(100000) %}{% set x = ";
    const auto start = std::chrono::steady_clock::now();
    for (const auto& source : {
             "{% set t = ('b',) * 1000000 %}" + fast + "'a'.startswith(t) %}{% endfor %}",
             "{% set s = 'a' * 100000000 %}" + fast + "{1: 1}.get(s) %}{% endfor %}",
             "{% set k = ('a' * 10000000,) * 900 %}" + fast + "{1: 1}[k] %}{% endfor %}",
             "{% set s = 'a' * 10000000 %}" + fast + "'b'.strip(s) %}{% endfor %}",
             std::string("{% set a = ['a' * 10000000 ~ 'x'] * 2000 %}{% set b = ['a' * 10000000 ~ 'x'] * 2000 %}{{ a == b }}"),
             "{% set s = 'é' * 1000000 %}" + fast + "s.isalpha() %}{% endfor %}",
             "{% set s = 'é' * 1000000 %}" + fast + "s | int %}{% endfor %}",
             "{% set s = 'é' * 1000000 %}" + fast + "s[-1] %}{% endfor %}",
         }) {
        EXPECT_THAT(made_of(source), testing::StartsWith("error: chat template: ")) << source;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(2));
}

TEST(JinjaTest, TimeOfFiltersOfListsIsLimited) {
    const auto start = std::chrono::steady_clock::now();
    for (const char* source : {
             "{{ (['a'] * 1000) | map(attribute='0.' * 20000 ~ '0') | list }}",
             "{% set t = (1,) * 300000 %}{{ (['x'] * 300) | select('in', t) | list }}",
             "{% set t = [2] * 300000 %}{{ ([1] * 100000) | map('default', *t) | list }}",
             "{% set c = cycler(*range(100000)) %}{% for i in range(100000) %}{% set x = range(100000) | list %}{% endfor %}",
         }) {
        EXPECT_THAT(made_of(source), testing::StartsWith("error: chat template: ")) << source;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(2));
}

// What looks at one item or knows the answer takes no time for the others.
TEST(JinjaTest, WhatIsCheapStaysCheap) {
    for (const auto& source : {
             std::string("{% set r = range(100000) %}{% for i in range(100000) %}{% set x = r.index(0) %}{% endfor %}"),
             std::string("{% for i in range(30000) %}{% set x = [loop] %}{% endfor %}"),
             std::string("{% set c = cycler(*range(100000)) %}{% for i in range(20000) %}{% set x = [c] %}{% endfor %}"),
             std::string("{% set t = [1] * 100000 %}{% for i in range(20000) %}{% set x = t | first %}{% set x = t[5] %}{% endfor %}"),
         }) {
        EXPECT_EQ(made_of(source), "") << source;
    }
}

// Sources whose reading was once in the square of their length.
TEST(JinjaTest, TimeOfLoadingIsLimited) {
    const auto start = std::chrono::steady_clock::now();
    std::string names;
    for (int i = 0; i < 50'000; ++i) names += "a" + std::to_string(i) + "=1,";
    EXPECT_EQ(made_of("{% macro m(" + names + "z=1) %}{% endmacro %}"), "");
    EXPECT_THAT(made_of("{{ m(" + names + ") }}"), HasSubstr("m is not defined"));
    EXPECT_THAT(made_of("{{ 1 | " + repeated("a.", 200'000) + "a }}"), HasSubstr("filter a.a.a"));
    EXPECT_THAT(made_of(repeated("{{ 1 }}", 200'000)), HasSubstr("the template is longer than 1 MiB"));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(1));
}

// Threads of musl and macOS have less stack than glibc's 8 MiB.
TEST(JinjaTest, NestingFitsIntoASmallStack) {
    const std::string recursive = "{% macro m(n) %}{% call m(n) %}{% endcall %}{% endmacro %}{{ m(1) }}";
    for (const auto& source : {
             recursive,
             std::string("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
             std::string("{% macro m(a) %}{% for x in [1] if m(1) %}{% endfor %}{% endmacro %}{{ m(1) }}"),
             std::string("{% macro m(a) %}{% filter upper %}{% with x = 1 %}{{ m(1) }}{% endwith %}{% endfilter %}{% endmacro %}{{ m() }}"),
             "{{ " + repeated("[", 1000) + repeated("]", 1000) + " }}",
             "{{ " + repeated("x is eq(", 1000) + repeated(")", 1000) + " }}",
             looped("[1]", "ns.x | map('int')", 1000) + "{{ ns.x | list }}",
             looped("[1]", "[ns.x]", 198) + "{{ ns.x }}{{ ns.x | tojson }}{{ ns.x == ns.x }}{{ 1 + 'a' }}",
         }) {
        EXPECT_THAT(on_small_stack([&] { return made_of(source); }), HasSubstr("chat template: ")) << source;
    }
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

// As Mistral Nemo's does.
TEST(JinjaTest, ATemplateThatWalksOverCallsInAContentGetsTexts) {
    EXPECT_EQ(
        made_of("{% for m in messages %}{% if m.role == 'tool_calls' or m.tool_calls is defined %}{% if m.tool_calls is defined %}"
                "{% set calls = m.tool_calls %}{% else %}{% set calls = m.content %}{% endif %}{% for c in calls %}{{ c }}{% endfor %}"
                "{% else %}{{ '[' + m.content + ']' }}{% endif %}{% endfor %}"),
        "[hi]");
}

}  // namespace
}  // namespace lorry::engine
