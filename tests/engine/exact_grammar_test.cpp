// What grammars of JSON schemas let through is valid also for readers that compute in binary, know the calendar, and decode names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/support/accepted_text.h"

namespace lorry::engine {
namespace {

// Whether an answer may be this text as a whole.
bool takes(const std::string& schema, std::string_view text) { return *tests::grammar_takes({.text = schema, .space = ""}, text); }

TEST(ExactGrammars, KnowTheCalendar) {
    const std::string date = R"({"type":"string","format":"date"})";
    for (const char* right :
         {"2024-02-29", "2000-02-29", "0004-02-29", "1900-02-28", "0001-01-01", "2023-12-31", "2023-04-30", "9990-10-10"})
        EXPECT_TRUE(takes(date, '"' + std::string(right) + '"')) << right;
    for (const char* wrong :
         {"2023-02-29", "1900-02-29", "2023-04-31", "0000-01-01", "0000-02-29", "2023-00-10", "2023-13-01", "2023-01-32", "2023-1-1"})
        EXPECT_FALSE(takes(date, '"' + std::string(wrong) + '"')) << wrong;
    const std::string time = R"({"type":"string","format":"time"})";
    EXPECT_TRUE(takes(time, R"("23:59:59.25+01:00")"));
    EXPECT_FALSE(takes(time, R"("12:00:60Z")"));
    EXPECT_FALSE(takes(time, R"("24:00:00Z")"));
    const std::string both = R"({"format":"date-time","type":"string"})";
    EXPECT_TRUE(takes(both, R"("2024-02-29T23:59:59Z")"));
    EXPECT_FALSE(takes(both, R"("2023-02-29T00:00:00Z")"));
    EXPECT_FALSE(takes(both, R"("0017-10-17t01:57:60-19:13")"));
}

TEST(ExactGrammars, HoldAFormatBesideAPatternAndAnAllOf) {
    const std::string schema = R"({"type":"string","format":"date","pattern":"^20","allOf":[{"pattern":"-29$"}]})";
    EXPECT_TRUE(takes(schema, R"("2024-02-29")"));
    EXPECT_FALSE(takes(schema, R"("2023-02-29")"));
    EXPECT_FALSE(takes(schema, R"("2024-02-28")"));
    EXPECT_FALSE(takes(schema, R"("1996-02-29")"));
}

TEST(ExactGrammars, WriteHostNamesOfTwoLabelsAndMore) {
    const std::string schema = R"({"type":"string","format":"hostname"})";
    EXPECT_TRUE(takes(schema, R"("a-1.example.org")"));
    for (const char* wrong : {R"("localhost")", R"("-a.org")", R"("a-.org")", R"("a..org")"}) EXPECT_FALSE(takes(schema, wrong)) << wrong;
}

TEST(ExactGrammars, KeepExclusiveBoundsInBinary) {
    const std::string share = R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})";
    for (const char* right : {"0.5", "0.000001", "0.999999", "0.10"}) EXPECT_TRUE(takes(share, right)) << right;
    for (const char* wrong : {"0", "1", "0.0", "1.0", "0.000000", "0.99999999999999999", "0.0000000000000001"})
        EXPECT_FALSE(takes(share, wrong)) << wrong;
    const std::string narrow = R"({"type":["number","null"],"exclusiveMinimum":10,"maximum":10.5})";
    for (const char* right : {"10.000001", "10.25", "10.5", "null"}) EXPECT_TRUE(takes(narrow, right)) << right;
    for (const char* wrong : {"10", "10.0", "10.500001"}) EXPECT_FALSE(takes(narrow, wrong)) << wrong;
    const std::string negative = R"({"exclusiveMaximum":0,"minimum":-3,"type":"number"})";
    EXPECT_TRUE(takes(negative, "-0.000001"));
    EXPECT_TRUE(takes(negative, "-3"));
    EXPECT_FALSE(takes(negative, "0"));
    EXPECT_FALSE(takes(negative, "-0.0"));
    const std::string integers = R"({"allOf":[{"type":"integer"},{"exclusiveMinimum":2}],"maximum":4})";
    EXPECT_TRUE(takes(integers, "3"));
    EXPECT_TRUE(takes(integers, "4"));
    EXPECT_FALSE(takes(integers, "2"));
    EXPECT_FALSE(takes(integers, "3.5"));
    const std::string halves = R"({"type":"number","multipleOf":0.5,"exclusiveMinimum":0,"maximum":2})";
    EXPECT_TRUE(takes(halves, "0.5"));
    EXPECT_TRUE(takes(halves, "2"));
    EXPECT_FALSE(takes(halves, "0"));
    EXPECT_FALSE(takes(halves, "0.75"));
}

TEST(ExactGrammars, WriteNoNumberThatIsInfiniteOrEndless) {
    for (const char* schema : {R"({"type":"number"})", R"({"type":["number","string"]})", R"({"type":"number","minimum":-5})", "{}"}) {
        const bool is_bounded = std::string_view(schema).find("minimum") != std::string_view::npos;
        EXPECT_EQ(takes(schema, "6.022e23"), !is_bounded) << schema;
        EXPECT_EQ(takes(schema, "1E-99"), !is_bounded) << schema;
        EXPECT_TRUE(takes(schema, "-1.25")) << schema;
        EXPECT_TRUE(takes(schema, std::string(100, '7') + "." + std::string(100, '7'))) << schema;
        EXPECT_FALSE(takes(schema, "9e999")) << schema;
        EXPECT_FALSE(takes(schema, "9e100")) << schema;
        EXPECT_FALSE(takes(schema, std::string(101, '7'))) << schema;
        EXPECT_FALSE(takes(schema, "0." + std::string(101, '7'))) << schema;
    }
    const std::string listed = R"({"type":"object","additionalProperties":{"type":["number","string"]}})";
    EXPECT_TRUE(takes(listed, R"({"1e999":"2e999 \"3e999","b":4e9})"));
    EXPECT_FALSE(takes(listed, R"({"1e999":"2e999","b":4e999})"));
}

// As an escape, a name of the schema would pass for a free one, with a value of another type.
TEST(ExactGrammars, WriteNamesInOneWay) {
    const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"}})";
    EXPECT_TRUE(takes(schema, R"({"a":1,"b":"x"})"));
    EXPECT_FALSE(takes(schema, R"({"a":1,"a":"x"})"));
    EXPECT_FALSE(takes(schema, R"({"a":1,"\u0061":"x"})"));
}

TEST(ExactGrammars, RefuseWhatNoAnswerCouldKeepExactly) {
    const auto refusal = [](const std::string& schema) {
        const auto grammar = tests::gpt2_compiler().compile({.text = schema});
        return grammar ? "none" : grammar.error();
    };
    EXPECT_THAT(refusal(R"({"type":"number","multipleOf":0.05})"),
                testing::StartsWith("multipleOf 0.05 is not supported: it is not exact in binary, and readers of JSON would find that "
                                    "multiples such as 0.15 are none"));
    EXPECT_THAT(refusal(R"({"type":"number","multipleOf":0.01})"),
                testing::AllOf(testing::HasSubstr("multiples such as 0.07 are none. Ask for an integer"),
                               testing::HasSubstr("a pattern such as ^[0-9]+\\.[0-9]{2}$.")));
    EXPECT_TRUE(takes(R"({"type":"string","pattern":"^[0-9]+\\.[0-9]{2}$"})", R"("19.99")"));
    EXPECT_THAT(refusal(R"({"type":"number","exclusiveMinimum":0.0000001})"),
                testing::StartsWith("an exclusive bound of 0.0000001 needs more digits"));
    EXPECT_THAT(refusal(R"({"type":"number","exclusiveMaximum":1234567890123456})"),
                testing::StartsWith("an exclusive bound of 1234567890123456"));
    EXPECT_EQ(refusal(R"({"type":"integer","exclusiveMaximum":1234567890123456})"), "none");
    EXPECT_EQ(refusal(R"({"const":1e-200})"), "const has a number with over 100 decimals");
}

std::string refusal_of(const std::string& schema) {
    const auto grammar = tests::gpt2_compiler().compile({.text = schema});
    return grammar ? "none" : grammar.error();
}

// The library left such characters out: the answer was "ab".
TEST(ExactGrammars, RefuseTextsWithControlCharactersThatHaveNoShortEscape) {
    for (const char* schema : {R"({"const":"a\u0001b"})", R"({"enum":["x","a\u001fc"]})", R"({"const":{"k":["\u007f"]}})"})
        EXPECT_THAT(refusal_of(schema), testing::HasSubstr("has a text with the control character U+")) << schema;
    EXPECT_TRUE(takes(R"({"const":"a\b\t\n\f\rb"})", R"("a\b\t\n\f\rb")"));
    EXPECT_TRUE(takes(R"({"const":{"k\u0001":1}})", R"({"k\u0001":1})"));
}

// They were held to the schema of the other names: classes left out line feeds, and their complement did not.
TEST(ExactGrammars, HoldNamesWithLineFeedsToThePatternThatTheyMatch) {
    const auto schema_of = [](const std::string& pattern) {
        return R"({"type":"object","patternProperties":{")" + pattern + R"(":{"type":"null"}},"additionalProperties":{"type":"boolean"}})";
    };
    for (const char* pattern : {"^[^a]+$", R"(^[^\"]*$)", R"(^\\W+$)", R"(^[\\s\\S]{3}$)"}) {
        EXPECT_TRUE(takes(schema_of(pattern), R"({"\n\t\r":null})")) << pattern;
        EXPECT_FALSE(takes(schema_of(pattern), R"({"\n\t\r":true})")) << pattern;
    }
    EXPECT_TRUE(takes(schema_of("^[^a]+$"), R"({"ba":true})"));
    // Python finds the line's end before the line feed, ECMA-262 does not.
    EXPECT_FALSE(takes(schema_of(R"(^\\S*$)"), R"({"b\n":true})"));
    EXPECT_FALSE(takes(schema_of(R"(^\\S*$)"), R"({"b\n":null})"));
    EXPECT_TRUE(takes(schema_of(R"(^\\S*$)"), R"({"b\nc":true})"));
}

// 4503599627370498.5 is a multiple of 1.5 and not of another last digit; read in binary, it is 4503599627370498.
TEST(ExactGrammars, WriteMultiplesThatAreStillMultiplesInBinary) {
    const std::string schema = R"({"type":"number","multipleOf":1.5})";
    EXPECT_TRUE(takes(schema, "4.5"));
    EXPECT_TRUE(takes(schema, "3000000000000001.5"));
    EXPECT_FALSE(takes(schema, "4503599627370498.0"));
    EXPECT_FALSE(takes(schema, "-4503599627370499.5"));
    EXPECT_THAT(refusal_of(R"({"type":"number","multipleOf":1.5,"minimum":4503599627370496})"), testing::HasSubstr("minimum"));
    EXPECT_FALSE(takes(R"({"type":"number","multipleOf":12.5,"maximum":9007199254740000})", "4503599627370500.0"));
    EXPECT_TRUE(takes(R"({"type":"number","multipleOf":2.0})", "9007199254740990"));
}

TEST(ExactGrammars, RefusePatternsThatMeanSomethingElseToOtherReaders) {
    for (const char* pattern :
         {"^[a-z&&[aeiou]]+$", "^[a-f--b]{4}$", "^[a-c~~x]$", "[[:alpha:]]", "[a[b]]",          "^a++$",      "a{,3}",          "a{ 1 }",
          R"(\\Aab)",          R"(ab\\z)",      R"(\\bab)",   R"(\\<ab)",    R"(\\b{start}ab)", R"(\\x{61})", R"(\\U00000061)", R"(\\a)",
          "(?x)a b",           "(?-u:a)",       "(?U)a+",     "(?P<stop>a)b"})
        EXPECT_THAT(refusal_of(R"({"type":"string","pattern":")" + std::string(pattern) + "\"}"), testing::StartsWith("the pattern "))
            << pattern;
    for (const char* pattern : {"^(?i:ab)$", "^[a-z&-]+$", R"(^[\\w.-]+$)", R"(^\\u0061$)", "^(?P<x>a)$", "^(a+)+$", R"(^\\p{L}+$)"})
        EXPECT_EQ(refusal_of(R"({"type":"string","pattern":")" + std::string(pattern) + "\"}"), "none") << pattern;
}

// A text matches for ECMA-262, whose classes are ASCII's, and for Python, whose classes are Unicode's.
TEST(ExactGrammars, WriteWhatAPatternsClassesMatchForAllReaders) {
    const auto of = [](const std::string& pattern) { return R"({"type":"string","pattern":")" + pattern + "\"}"; };
    EXPECT_TRUE(takes(of(R"(^\\w\\W\\d\\D\\s\\S$)"), R"("a-1x\n!")"));
    EXPECT_FALSE(takes(of(R"(^\\w$)"), "\"é\""));
    EXPECT_FALSE(takes(of(R"(^\\W$)"), "\"é\""));
    EXPECT_TRUE(takes(of(R"(^\\W$)"), "\"–\""));
    EXPECT_FALSE(takes(of(R"(^[^\\w]$)"), "\"é\""));
    EXPECT_FALSE(takes(of(R"(^[^\\W]$)"), "\"é\""));
    EXPECT_FALSE(takes(of(R"(^\\D$)"), "\"٣\""));
    EXPECT_TRUE(takes(of(R"(^\\D$)"), "\"é\""));
    EXPECT_FALSE(takes(of(R"(^\\S$)"), "\"\u00a0\""));
    EXPECT_TRUE(takes(of(R"(^[\\x00-\\x1f]$)"), R"("\n")"));
}

// Each further pattern doubled the time and the memory, which no limit of the library stopped: 23 took a minute and two gigabytes.
// Pins: the bound on patterns that meet refused schemas in which they do not.
TEST(ExactGrammars, TakeManyFormatsThatHoldForOtherTexts) {
    const std::string tree = R"({"type":"object","properties":{"id":{"type":"string","format":"uuid"},
        "mail":{"type":"string","format":"email"},"at":{"type":"string","format":"date-time"},"of":{"type":"string","pattern":"^[a-z]+$"},
        "is":{"type":"string","anyOf":[{"const":"a"},{"const":"b"}]},"children":{"type":"array","items":{"$ref":"#"}}},
        "required":["is","children"],"additionalProperties":false})";
    EXPECT_TRUE(takes(tree, R"({"is":"a","children":[{"of":"x","is":"b","children":[]}]})"));
    EXPECT_FALSE(takes(tree, R"({"is":"a","children":[{"of":"X","is":"b","children":[]}]})"));
    const std::string parts = R"({"$defs":{"node":{"type":"object","properties":{"id":{"type":"string","format":"date"}}},
        "times":{"type":"object","properties":{"at":{"type":"string","format":"date-time"}}},
        "contact":{"type":"object","properties":{"ip":{"type":"string","format":"ipv4"},"mail":{"type":"string","format":"email"}}}},
        "allOf":[{"$ref":"#/$defs/node"},{"$ref":"#/$defs/times"},{"$ref":"#/$defs/contact"}],"required":["id","ip"]})";
    EXPECT_TRUE(takes(parts, R"({"id":"2024-02-29","ip":"10.0.0.1"})"));
    EXPECT_FALSE(takes(parts, R"({"id":"2023-02-29","ip":"10.0.0.1"})"));
}

TEST(ExactGrammars, RefuseMorePatternsForOneTextThanCanBeCompared) {
    const auto joined = [](int count, const std::string& between, const auto& part) {
        std::string all;
        for (int i = 1; i <= count; ++i) all += (i > 1 ? between : "") + part(i);
        return all;
    };
    const auto pattern = [](int i) { return R"({"pattern":"[a-z]{)" + std::to_string(i) + "}\"}"; };
    const std::string too_many = "it is too complex: too many patterns hold for one text";
    EXPECT_THAT(refusal_of(R"({"type":"string","allOf":[)" + joined(40, ",", pattern) + "]}"), testing::StartsWith(too_many));
    const auto definition = [](int i) {
        const std::string next = i < 40 ? R"(,"$ref":"#/$defs/a)" + std::to_string(i + 1) + '"' : "";
        return "\"a" + std::to_string(i) + R"(":{"pattern":"[a-z]{)" + std::to_string(i) + "}\"" + next + "}";
    };
    EXPECT_THAT(refusal_of(R"({"type":"string","$ref":"#/$defs/a1","$defs":{)" + joined(40, ",", definition) + "}}"),
                testing::StartsWith(too_many));
    const auto property = [&](int i) { return R"({"properties":{"a":)" + pattern(i) + "}}"; };
    EXPECT_THAT(refusal_of(R"({"type":"object","allOf":[)" + joined(40, ",", property) + "]}"), testing::StartsWith(too_many));
    const auto operand = [](int i) { return "/(?s:.*)[a-z]{" + std::to_string(i) + "}(?s:.*)/"; };
    const auto lark =
        tests::gpt2_compiler().compile({.kind = schema::Structure::Kind::lark, .text = "start: T\nT: " + joined(40, " & ", operand)});
    ASSERT_FALSE(lark);
    EXPECT_THAT(lark.error(), testing::StartsWith(too_many));
    // Fewer are taken, also many that hold for a text each.
    const auto anchored = [](int i) { return R"({"pattern":"^[a-z]{)" + std::to_string(i) + ",}$\"}"; };
    EXPECT_EQ(refusal_of(R"({"type":"string","maxLength":80,"allOf":[)" + joined(10, ",", anchored) + "]}"), "none");
    const auto named = [&](int i) { return "\"p" + std::to_string(i) + "\":" + pattern(i); };
    EXPECT_EQ(refusal_of(R"({"type":"object","additionalProperties":false,"properties":{)" + joined(40, ",", named) + "}}"), "none");
    EXPECT_EQ(refusal_of(R"({"type":"string","allOf":[)" + joined(3, ",", pattern) + "]}"), "none");
}

TEST(ExactGrammars, FindDefinitionsByNamesWithEscapes) {
    const std::string schema = R"({"$defs":{"a/b~c":{"type":"null"},"a b":{"type":"boolean"},"ü":{"const":7}},"anyOf":[)"
                               R"({"$ref":"#/$defs/a~1b~0c"},{"$ref":"#/$defs/a%20b"},{"$ref":"#/$defs/%C3%BC"}]})";
    for (const char* text : {"null", "true", "7"}) EXPECT_TRUE(takes(schema, text)) << text;
    EXPECT_TRUE(takes(R"({"type":"array","uniqueItems":false,"items":{"const":1}})", "[1,1]"));
    EXPECT_THAT(refusal_of(R"({"type":"array","uniqueItems":true})"), testing::HasSubstr("uniqueItems"));
}

// The library let a comma through, and no name could follow it.
TEST(ExactGrammars, EndAnObjectWhosePatternsMatchListedNamesOnly) {
    const std::string closed = R"("additionalProperties":false,"patternProperties":{"^z$":{"type":"null"}})";
    const std::string required = R"({"type":"object","required":["z"],)" + closed + "}";
    EXPECT_TRUE(takes(required, R"({"z":null})"));
    EXPECT_FALSE(takes(required, R"({"z":1})"));
    const std::string listed = R"({"type":"object","properties":{"z":{"type":["integer","null"]},"a":{"const":1}},)" + closed + "}";
    for (const char* text : {R"({"z":null})", R"({"a":1})", R"({"z":null,"a":1})", "{}"}) EXPECT_TRUE(takes(listed, text)) << text;
    EXPECT_FALSE(takes(listed, R"({"z":1})"));
    const auto grammar = tests::gpt2_compiler().compile({.text = required, .space = ""});
    Grammar::Answer answer = (*grammar)->begin();
    EXPECT_TRUE(answer.force()->complete);
}

}  // namespace
}  // namespace lorry::engine
