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

}  // namespace
}  // namespace lorry::engine
