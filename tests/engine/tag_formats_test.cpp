// Structural tags in the form with `format`: the texts that match are XGrammar's (tests/data/text/make_tag_vectors.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "schema/json.h"
#include "tests/support/accepted_text.h"

namespace lorry::engine {
namespace {

schema::Structure tags_of(const std::string& format) {
    return {.kind = schema::Structure::Kind::tags, .text = R"({"format":)" + format + "}", .space = ""};
}

TEST(TagFormats, LetTheTextsThroughThatXGrammarTakesForMatches) {
    std::ifstream file(std::filesystem::path(LORRY_SOURCE_DIR) / "tests" / "data" / "text" / "tag_vectors.json");
    std::ostringstream vectors;
    vectors << file.rdbuf();
    const auto json = schema::Json::parse(vectors.str()).value();
    int compared = 0;
    int refused = 0;
    for (const schema::Json& one : *json.find("cases")->as_array()) {
        const std::string& name = *one.find("name")->as_string();
        const schema::Structure structure = tags_of(one.find("format")->dump());
        // A generated format may be refused, but other texts may not match.
        if (name.starts_with("generated") && !tests::gpt2_compiler().compile(structure)) {
            ++refused;
            continue;
        }
        for (const auto& [text, matches] : *one.find("matches")->as_object()) {
            const auto taken = tests::grammar_takes(structure, text);
            ASSERT_TRUE(taken) << name << ": " << taken.error();
            EXPECT_EQ(*taken, *matches.as_bool()) << name << ": " << text << " and " << one.find("format")->dump();
            ++compared;
        }
    }
    EXPECT_GT(compared, 1'200);
    EXPECT_LT(refused, 30);
}

std::string tag_error_of(const std::string& format) {
    const auto compiled = tests::gpt2_compiler().compile(tags_of(format));
    return compiled ? "none" : compiled.error();
}

TEST(TagFormats, AreRefusedByNameWhereTheyAreNotSupportedOrWrong) {
    struct Case {
        std::string format;
        std::string error;
    };
    const auto content = [](const std::string& inner) { return R"({"type":"tag","begin":"<a>","end":"</a>","content":)" + inner + "}"; };
    const auto in_text = [](const std::string& more) {
        return R"({"type":"triggered_tags","tags":[{"begin":"<a>","end":"</a>","content":{"type":"any_text"}}],)" + more + "}";
    };
    const std::vector<Case> cases{
        {R"({})", "format.type is missing"},
        {R"({"type":7})", "format.type is missing, or no text"},
        {R"({"type":"qwen_xml_parameter","json_schema":{}})", "format.type 'qwen_xml_parameter' is not supported; write the parameters"},
        {R"({"type":"grammar","grammar":"root ::= \"a\""})", "format.type 'grammar' is not supported; write regex or json_schema"},
        {content(R"({"type":"token","token":7})"), "format.content.type 'token' is not supported; write const_string"},
        {R"({"type":"repeat","min":1,"max":2,"content":{"type":"any_text"}})", "format.type 'repeat' is not supported"},
        {R"({"type":"poem"})", "format.type 'poem' is not supported; see docs/jobs.md"},
        {R"({"type":"const_string"})", "format.value is missing, or no text"},
        {R"({"type":"const_string","value":"a<|endoftext|>"})", "has the special token '<|endoftext|>'"},
        {R"({"type":"any_text","max_tokens":9})", "format.max_tokens is not supported; leave it out"},
        {R"({"type":"any_text","excludes":"a"})", "format.excludes is a list of at least one text"},
        {R"({"type":"any_text","excludes":[""]})", "format.excludes has an empty text"},
        {R"({"type":"regex","pattern":""})", "format.pattern is empty"},
        {R"({"type":"regex","pattern":"(a"})", "unclosed group"},
        {R"({"type":"json_schema"})", "format.json_schema is missing"},
        {R"({"type":"json_schema","json_schema":{},"style":"glm_xml"})", R"(format.style "glm_xml" is not supported)"},
        {R"({"type":"json_schema","json_schema":{},"any_order":true})", "format.any_order is not supported"},
        {R"({"type":"json_schema","json_schema":{},"excludes":["a"]})", "format.excludes is not supported"},
        {R"({"type":"json_schema","json_schema":{"minProperties":2}})", "format.json_schema: minProperties above 1"},
        {R"({"type":"json_schema","json_schema":{"not":{}}})", R"(failed to compile JSON schema: Unimplemented keys: ["not"])"},
        {R"({"type":"sequence","elements":[]})", "format.elements is a list of at least one format"},
        {R"({"type":"or","elements":[{"type":"any_text"},{"type":"any_text","x":1}]})", "format.elements[1].x is not supported"},
        {R"({"type":"tag","begin":{"type":"token","token":7},"content":{"type":"any_text"},"end":"a"})",
         "format.begin is missing, or no text"},
        {R"({"type":"tag","begin":"a","content":{"type":"any_text"},"end":{"type":"token","token":7}})",
         "neither a text nor a list of texts"},
        {R"({"type":"tag","begin":"a","content":7,"end":"a"})", "format.content is an object with the member type"},
        {in_text(R"("triggers":["<a>"],"at_least_one":1)"), "format.at_least_one is true or false"},
        {in_text(R"("triggers":["<b"])"), "format: format.tags[0].begin '<a>' begins with none of the triggers"},
        {in_text(R"("triggers":["<a","<b"])"), "none of the format.tags begins with the trigger '<b'"},
        {in_text(R"("triggers":["<a"],"excludes":["x<a>"])"), "the trigger '<a' is a part of 'x<a>'"},
        {in_text(R"("triggers":["<a"],"excludes":["<"])"), "the trigger '<a' has '<' as a part"},
        {R"({"type":"tags_with_separator","separator":",","tags":[{"type":"any_text"}]})", "format.tags[0] is a format of the type tag"},
        {R"({"type":"tags_with_separator","tags":[{"begin":"a","end":"b","content":{"type":"any_text"}}]})", "format.separator is missing"},
    };
    for (const auto& [format, error] : cases) EXPECT_THAT(tag_error_of(format), testing::HasSubstr(error)) << format;
}

// The grammar library takes the longest word without a way back: 12 would have swallowed the 3 that must follow, and no answer would end.
TEST(TagFormats, WhosePartsCouldNotBeToldApartAreRefused) {
    const std::string object = R"({"type":"json_schema","json_schema":{"type":"object"}})";
    const std::string number = R"({"type":"json_schema","json_schema":{"type":"number"}})";
    const std::string digits = R"({"type":"regex","pattern":"[0-9]+"})";
    const auto constant = [](const std::string& text) { return R"({"type":"const_string","value":")" + text + "\"}"; };
    const auto sequence = [](const std::string& parts) { return R"({"type":"sequence","elements":[)" + parts + "]}"; };
    const auto either = [](const std::string& parts) { return R"({"type":"or","elements":[)" + parts + "]}"; };
    for (const std::string& format :
         {sequence(number + "," + constant("3")), sequence(number + "," + number), sequence(digits + "," + number),
          sequence(R"({"type":"any_text"},)" + object), sequence(number + R"(,{"type":"any_text"})"), either(constant("{") + "," + object),

          either(sequence(constant("a") + "," + number) + "," + sequence(constant("a1") + "," + object))}) {
        EXPECT_THAT(tag_error_of(format), testing::HasSubstr("so where it ends could not be told")) << format;
    }
    for (const std::string& format :
         {sequence(number + "," + constant("px")), sequence(digits + "," + object), sequence(constant("a") + "," + number),
          either(sequence(constant("a") + "," + object) + "," + sequence(constant("a1") + "," + number)), either(number + "," + object),
          either(constant("a") + "," + sequence(constant("a") + "," + object))}) {
        EXPECT_EQ(tag_error_of(format), "none") << format;
    }
}

TEST(TagFormats, EndFreeTextAtTheFirstEnd) {
    const auto tag = [](const std::string& end) {
        return tags_of(R"({"type":"tag","begin":"<","content":{"type":"any_text"},"end":)" + end + "}");
    };
    EXPECT_TRUE(*tests::grammar_takes(tag(R"("aa")"), "<xaa"));
    EXPECT_FALSE(*tests::grammar_takes(tag(R"("aa")"), "<xaaa"));
    EXPECT_TRUE(*tests::grammar_takes(tag(R"(["a>","</a>x"])"), "<</a>"));
    EXPECT_FALSE(*tests::grammar_takes(tag(R"(["a>","</a>x"])"), "<</a>x"));
    EXPECT_TRUE(*tests::grammar_takes(tag(R"(["</b>","</a>x"])"), "<</a></a>x"));
    // What free text must not have may be a part of its end.
    const auto items = tags_of(R"({"type":"star","content":{"type":"tag","begin":"<b>","end":"</b>","content":
        {"type":"any_text","excludes":["<"]}}})");
    EXPECT_TRUE(*tests::grammar_takes(items, "<b>x</b><b></b>"));
    EXPECT_FALSE(*tests::grammar_takes(items, "<b><</b>"));
}

// Each is taken, or refused for what it is.
TEST(TagFormats, OfManyPartsAreTakenOrRefused) {
    std::string tags;
    std::string triggers;
    for (int i = 0; i < 200; ++i) {
        tags +=
            fmt::format(R"({}{{"begin":"<f{:03}=","end":"</f>","content":{{"type":"json_schema","json_schema":{{"type":"integer"}}}}}})",
                        i > 0 ? "," : "", i);
        triggers += fmt::format(R"({}"<f{:03}")", i > 0 ? "," : "", i);
    }
    const auto triggered = [&](const std::string& list) {
        return R"({"type":"triggered_tags","tags":[)" + tags + R"(],"triggers":[)" + list + "]}";
    };
    EXPECT_EQ(tag_error_of(triggered(R"("<f")")), "none");
    EXPECT_EQ(tag_error_of(triggered(triggers)), "none");
    EXPECT_EQ(tag_error_of(R"({"type":"tags_with_separator","separator":"","tags":[)" + tags + "]}"), "none");
    std::string regexes = R"({"type":"any_text"})";
    for (int i = 0; i < 100; ++i)
        regexes += fmt::format(R"(,{{"type":"optional","content":{{"type":"sequence","elements":[
        {{"type":"regex","pattern":"[a-z]{{1,20}}{}"}},{{"type":"json_schema","json_schema":{{}}}}]}}}})",
                               i);
    EXPECT_NE(tag_error_of(R"({"type":"or","elements":[)" + regexes + "]}"), "none");
    const std::string long_pattern = R"({"type":"regex","pattern":")" + std::string(100'000, 'a') + "\"}";
    EXPECT_THAT(tag_error_of(R"({"type":"or","elements":[)" + long_pattern + "," + long_pattern + "]}"),
                testing::HasSubstr("the patterns are too long"));
    // Each pair must be compared, and each takes long.
    std::string pairs;
    for (int i = 0; i < 60; ++i) {
        pairs += fmt::format(R"({}{{"type":"sequence","elements":[{{"type":"regex","pattern":"(a|b)*a(a|b){{9}}{}"}},
            {{"type":"json_schema","json_schema":{{}}}}]}})",
                             i > 0 ? "," : "", std::string(static_cast<std::size_t>(i + 1), 'c') + "d");
    }
    EXPECT_EQ(tag_error_of(R"({"type":"or","elements":[)" + pairs + "]}"), "it is too complex: simplify it");
    std::string nested = R"({"type":"any_text"})";
    for (int i = 0; i < 40; ++i)
        nested = R"({"type":"star","content":{"type":"or","elements":[)" + nested + R"(,{"type":"const_string","value":"a"}]}})";
    EXPECT_EQ(tag_error_of(nested), "none");
}

}  // namespace
}  // namespace lorry::engine
