// Json: text that is read and written back is equal, errors name their place, and time grows only linearly with size.
#include "schema/json.h"

#include "schema/json_fault.h"

#include <chrono>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lorry::schema {
namespace {

using ::testing::HasSubstr;

Json parsed(std::string_view text) {
    auto result = Json::parse(text);
    EXPECT_TRUE(result.has_value()) << text.substr(0, 100) << ": " << (result ? "" : result.error());
    return result ? std::move(*result) : Json();
}

std::string error_of(std::string_view text) {
    const auto result = Json::parse(text);
    return result ? "accepted" : result.error();
}

TEST(JsonTest, TextThatIsReadAndWrittenStaysTheSame) {
    for (const char* text : {
             R"({"b":1,"a":[true,false,null],"nested":{"x":{}},"empty":[]})",
             R"([0,-1,9223372036854775807,-9223372036854775808])",
             R"([0.1,1.0,-2.5,1e+300,5e-324,1.7976931348623157e+308,9223372036854775808.0])",
             R"([18446744073709551615,-9223372036854775809,123456789012345678901234567890])",
             R"([1.50,1e3,1E-7,-0.0,0.10000000000000000555,100000.0])",
             R"("quote \" backslash \\ newline \n tab \t bell \u0007 é 漢字 😀")",
             R"("")",
         }) {
        EXPECT_EQ(parsed(text).dump(), text);
    }
}

TEST(JsonTest, EscapesAndSurrogatePairsBecomeUtf8) { EXPECT_EQ(*parsed(R"("\u0041\u00e9\ud83d\ude00\/")").as_string(), "Aé😀/"); }

// Plain bytes are written run by run: none is lost or doubled around an escaped one.
TEST(JsonTest, EachSpecialByteIsWrittenAtEachPlaceOfAText) {
    for (std::size_t length = 1; length <= 20; ++length) {
        for (std::size_t at = 0; at < length; ++at) {
            for (const char special : {'"', '\\', '\n', '\r', '\t', '\b', '\f', '\0', '\x1f', '\x7f'}) {
                std::string text(length, 'a');
                text[at] = special;
                EXPECT_EQ(*parsed(Json(text).dump()).as_string(), text);
                text += text;
                EXPECT_EQ(*parsed(Json(text).dump()).as_string(), text);
            }
        }
    }
}

// Pins: two ids of 64 bits became one, and messages quoted a number that nobody had sent.
TEST(JsonTest, NumbersThatNoInt64OrDoubleWritesAlikeKeepTheirDigits) {
    const Json largest = parsed("18446744073709551615");
    EXPECT_STREQ(largest.kind(), "integer");
    EXPECT_TRUE(largest.is_number());
    EXPECT_EQ(largest.as_integer(), std::nullopt);
    EXPECT_EQ(largest.as_number(), 18446744073709551616.0);
    EXPECT_EQ(Json(std::numeric_limits<std::uint64_t>::max()).dump(), "18446744073709551615");
    EXPECT_EQ(Json(std::uint64_t{7}).as_integer(), 7);
    EXPECT_STREQ(parsed("1.50").kind(), "number");
    EXPECT_EQ(parsed("1.50").as_number(), 1.5);
    EXPECT_EQ(parsed("1e3").as_integer(), 1000);
    EXPECT_EQ(parsed("9007199254740993.0").as_integer(), std::nullopt) << "the double has another last digit";
}

TEST(JsonTest, IntegersOf64BitsAreIntegersAndLargerOnesAreNumbers) {
    EXPECT_EQ(parsed("9223372036854775807").as_integer(), 9223372036854775807);
    EXPECT_EQ(parsed("-9223372036854775808").as_integer(), std::numeric_limits<std::int64_t>::min());
    EXPECT_FALSE(parsed("9223372036854775808").is_integer());
    EXPECT_EQ(parsed("9223372036854775808").as_number(), 9223372036854775808.0);
    EXPECT_EQ(parsed("36893488147419103232").as_number(), 36893488147419103232.0);
    EXPECT_EQ(parsed("3.0").as_integer(), 3);
    EXPECT_EQ(parsed("3.5").as_integer(), std::nullopt);
    EXPECT_EQ(parsed("1e300").as_integer(), std::nullopt);
    EXPECT_EQ(parsed("7").as_number(), 7.0);
    EXPECT_EQ(parsed("\"7\"").as_number(), std::nullopt);
}

TEST(JsonTest, TheLastOfEqualKeysWinsInTheFirstOnesPlace) {
    EXPECT_EQ(parsed(R"({"a":1,"b":2,"a":3})").dump(), R"({"a":3,"b":2})");
    EXPECT_EQ(parsed(R"({"a":1,"a":2,"a":3,"c":4,"c":5})").dump(), R"({"a":3,"c":5})");
}

TEST(JsonTest, NestingIsBoundedAtAHundredLevels) {
    const auto nested = [](std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
    EXPECT_EQ(parsed(nested(100)).dump(), nested(100));
    EXPECT_EQ(error_of(nested(101)), "nested deeper than 100 levels");
    EXPECT_EQ(error_of(std::string(1 << 20, '[')), "nested deeper than 100 levels");
    std::string objects;
    for (int i = 0; i < 101; ++i) objects += R"({"a":)";
    EXPECT_EQ(error_of(objects), "nested deeper than 100 levels");
}

TEST(JsonTest, WhatIsNoJsonIsRefusedWithItsPlace) {
    EXPECT_THAT(error_of(""), HasSubstr("at byte 1"));
    EXPECT_THAT(error_of("{\"a\":\n nul}"), HasSubstr("line 2, column 5"));
    EXPECT_THAT(error_of("{\"a\":1} x"),
                ::testing::AllOf(::testing::StartsWith("syntax error while parsing value"), HasSubstr("at byte 9")));
    EXPECT_THAT(error_of("{\"a\":1,}"), HasSubstr("at byte 8"));
    for (const char* text :
         {"NaN", "[Infinity]", "-Infinity", "01", "1.", "+1", "'a'", "{a:1}", "[1 2]", "\"\\x\"", "\"\t\"", "\"\\ud800\"", "nu"}) {
        EXPECT_THAT(error_of(text), HasSubstr("at byte")) << text;
    }
    EXPECT_EQ(error_of("1e400"), "number overflow (at byte 5)");
    EXPECT_EQ(error_of("[-1e999]"), "number overflow (at byte 7)");
}

// Pins: nlohmann quotes the last token, so words of a prompt came into logs and dead letters' headers.
TEST(JsonTest, ErrorsQuoteNothingOfTheText) {
    EXPECT_EQ(error_of("{\"prompt\": \"secret words"),
              "syntax error while parsing value - invalid string: missing closing quote (at byte 25)");
    EXPECT_EQ(error_of("{\"prompt\": secret}"), "syntax error while parsing value - invalid literal (at byte 12)");
    for (const char* text : {"secret", "\"secret", "[\"secret\x01\"]", "{\"secret\xff\":1}", "{secret:1}", "{\"a\" secret", "[1, secret]",
                             "\"secret\\q\"", "\"secret; last read: 'secret", "\"'; expected secret", "[\"a\"]secret", "/*secret"}) {
        EXPECT_THAT(error_of(text), ::testing::Not(HasSubstr("secret"))) << text;
    }
    for (const char* text : {"7777777777e77777", "[-7777777777e77777]", "7777777777x", "07777777777"}) {
        EXPECT_THAT(error_of(text), ::testing::Not(HasSubstr("77"))) << text;
    }
}

// Pins: who sent a body with broken quotes was given a number of bytes to count.
TEST(JsonTest, APlaceIsShownWithWhatStandsAround) {
    const auto shown = [](std::string_view text) {
        const auto fault = find_json_fault(text);
        return fault ? std::to_string(fault->byte) + " " + fault->around : "none";
    };
    EXPECT_EQ(shown("'{\"model\":\"a\"}'"), "1 '{\"model\":\"a\"}'");
    EXPECT_EQ(shown("{model:a}"), "2 {model:a}");
    EXPECT_EQ(shown("{\"model\":\"a\",\"prompt\":\"it"), "26 …\"model\":\"a\",\"prompt\":\"it");
    EXPECT_EQ(shown("{\"a\":\n  oops, and much more of it"), "9 {\"a\":   oops, and much m…");
    EXPECT_EQ(shown(std::string(40, ' ') + "größe und   länge"), "41 …" + std::string(24, ' ') + "größe und   lä…") << "whole letters";
    EXPECT_EQ(shown(""), "1 ");
    EXPECT_EQ(shown("[1]"), "none");
    EXPECT_EQ(shown(std::string(101, '[')), "none") << "nested too deeply has no place";
    EXPECT_EQ(find_json_fault("{\"a\" 1}")->error, error_of("{\"a\" 1}"));
}

// nlohmann quotes the last token: the whole text for an unclosed string, and raw bytes for a broken character.
TEST(JsonTest, ErrorsAreShortAndValidUtf8WhateverWasRead) {
    const std::string unclosed = "\"" + std::string(1 << 20, 'x');
    EXPECT_LT(error_of(unclosed).size(), 300U);
    for (const std::string bytes : {"\"\xff\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "\xfe\xff", "\"\xe2\x82", "{\"\xf5\":1}"}) {
        EXPECT_THAT(error_of(bytes), HasSubstr("at byte"));
        EXPECT_TRUE(is_valid_utf8(error_of(bytes))) << error_of(bytes);
    }
}

// Anything quadratic would run into the test's time limit here.
TEST(JsonTest, AMillionMembersOrElementsAreReadInTheirOrder) {
    std::string text = "{";
    for (int i = 0; i < 1'000'000; ++i) text += "\"" + std::to_string(i % 700'000) + "\":" + std::to_string(i) + ",";
    text.back() = '}';
    const Json members = parsed(text);
    ASSERT_EQ(members.as_object()->size(), 700'000U);
    for (int i = 0; i < 700'000; ++i) {
        const auto& [key, value] = (*members.as_object())[static_cast<std::size_t>(i)];
        ASSERT_EQ(key, std::to_string(i));
        ASSERT_EQ(value.as_integer(), i < 300'000 ? i + 700'000 : i) << "the last of equal keys";
    }
    text = "[";
    for (int i = 0; i < 1'000'000; ++i) text += std::to_string(i) + (i % 2 == 0 ? ",[[[{}]]]," : ",\"x\",");
    text.back() = ']';
    const Json elements = parsed(text);
    ASSERT_EQ(elements.as_array()->size(), 2'000'000U);
    EXPECT_EQ(elements.as_array()->at(1'999'998).as_integer(), 999'999);
    EXPECT_EQ(elements.dump(), text);
    std::string same = "{";
    for (int i = 0; i < 1'000'000; ++i) same += "\"key\":" + std::to_string(i) + ",";
    same.back() = '}';
    EXPECT_EQ(parsed(same).dump(), R"({"key":999999})");
}

TEST(JsonTest, CharactersAreCountedAsCodePoints) {
    EXPECT_EQ(count_characters(""), 0);
    EXPECT_EQ(count_characters("aé€😀"), 4);
}

TEST(JsonTest, AStringMemberIsFoundWithoutBuildingATree) {
    EXPECT_EQ(scan_string_member(R"({"a":{"id":"inner"},"b":[{"id":"x"}],"id":"outer","c":[1,[2]]})", "id"), "outer");
    EXPECT_EQ(scan_string_member(R"({"id":"first","id":"last"})", "id"), "last");
    EXPECT_EQ(scan_string_member(R"({"id":"first","id":7})", "id"), std::nullopt);
    for (const char* text : {R"(["id","x"])", R"("id")", "7", R"({"id":["x"]})", R"({"id":{"id":"x"}})", R"({"id":"x")", "{}", ""}) {
        EXPECT_EQ(scan_string_member(text, "id"), std::nullopt) << text;
    }
}

TEST(JsonTest, SettingAMemberReplacesOrAppends) {
    Json value;
    value.set("a", 1);
    value.set("b", "two");
    value.set("a", Json::array({1.5F, 2U, nullptr}));
    EXPECT_EQ(value.dump(), R"({"a":[1.5,2,null],"b":"two"})");
    EXPECT_EQ(value.find("c"), nullptr);
    EXPECT_EQ(Json(1).find("c"), nullptr);
    EXPECT_STREQ(value.kind(), "object");
}

TEST(JsonTest, ValidUtf8IsToldFromInvalid) {
    for (const char* good : {"", "ascii", "é", "\u0800", "\uFFFF", "\U0001F600", "\U0010FFFF"}) EXPECT_TRUE(is_valid_utf8(good)) << good;
    for (const char* bad : {"\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                            "\xf5\x80\x80\x80", "a\xc3", "\xe2\x82", "\xe2\x28\xa1"}) {
        EXPECT_FALSE(is_valid_utf8(bad)) << bad;
        EXPECT_TRUE(is_valid_utf8(repair_utf8(bad)));
    }
    EXPECT_EQ(repair_utf8("a\xff"
                          "b\xe2\x82"),
              "a\uFFFDb\uFFFD\uFFFD");
    EXPECT_EQ(repair_utf8("é漢😀"), "é漢😀");
}

// ASCII is skipped in whole words: bytes that are not ASCII must be found at any place.
TEST(JsonTest, InvalidUtf8IsFoundAtEachPlaceOfAText) {
    for (std::size_t length = 1; length <= 40; ++length) {
        for (std::size_t at = 0; at < length; ++at) {
            const std::string before(at, 'a');
            const std::string after(length - at - 1, 'z');
            EXPECT_TRUE(is_valid_utf8(before + "漢" + after));
            EXPECT_FALSE(is_valid_utf8(before + "\xa9" + after));
            EXPECT_EQ(repair_utf8(before + "\xa9" + after), before + "\uFFFD" + after);
        }
    }
}

}  // namespace
}  // namespace lorry::schema
