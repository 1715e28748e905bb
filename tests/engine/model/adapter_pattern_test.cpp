// Python's regular expressions as adapter configs use them.
#include "engine/model/pattern.h"
#include "tests/support/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>

namespace lorry {
namespace {

// No other thread takes part.
const tests::Labelled patterns_without_tsan{"*", {tests::Label::not_tsan}};

using engine::MatchSteps;
using engine::Pattern;

bool matches(const Pattern& pattern, std::string_view text) {
    MatchSteps steps;
    return pattern.matches(text, steps);
}
bool matches_tail(const char* pattern, std::string_view text) {
    MatchSteps steps;
    return Pattern::compile(pattern)->matches_tail(text, steps);
}

struct Row {
    const char* pattern;
    const char* text;
    bool matches;
};
// Each line was checked with re.fullmatch(pattern, text).
constexpr std::array rows = {
    Row{"abc", "abc", true},
    Row{"abc", "abcd", false},
    Row{"a.c", "a-c", true},
    Row{"", "", true},
    Row{"", "a", false},
    Row{".*", "anything at all", true},
    Row{"a|bc|d", "bc", true},
    Row{"a|bc|d", "bd", false},
    Row{"(a|b)*c", "abbac", true},
    Row{"(a|b)*c", "abxc", false},
    Row{"(?:a|b)+?c?", "ab", true},
    Row{"a{3}", "aaa", true},
    Row{"a{3}", "aa", false},
    Row{"a{,2}", "", true},
    Row{"a{2,}", "aaaaa", true},
    Row{"a{2,}", "a", false},
    Row{"(ab|c){2,3}", "abcab", true},
    Row{"(ab|c){2,3}", "abcabc", false},
    Row{"[a-c_]+", "a_cb", true},
    Row{"[^a-c]+", "xyz", true},
    Row{"[^a-c]+", "xbz", false},
    Row{"[]a]+", "]a", true},
    Row{"[\\d-]+", "1-2", true},
    Row{"\\d+\\.\\w+", "12.q_proj", true},
    Row{"\\D+", "12", false},
    Row{"^a$", "a", true},
    Row{"a^b", "ab", false},
    Row{".*\\.(q|v)_proj", "model.layers.0.self_attn.v_proj", true},
    Row{".*\\.(q|v)_proj", "model.layers.0.self_attn.k_proj", false},
    Row{"model\\.layers\\.(1[0-9]|[2-9])\\.mlp\\..*", "model.layers.12.mlp.up_proj", true},
    Row{"model\\.layers\\.(1[0-9]|[2-9])\\.mlp\\..*", "model.layers.1.mlp.up_proj", false},
    Row{"^(?!.*head).*_proj$", "model.layers.0.self_attn.q_proj", true},
    Row{"^(?!.*self).*_proj$", "model.layers.0.self_attn.q_proj", false},
    Row{"(?=.*attn)[a-z._0-9]*", "layers.0.attn", true},
    Row{"(?=.*attn)[a-z._0-9]*", "layers.0.mlp", false},
    Row{"(a*)*b", "aaab", true},
    Row{"(|a)+", "aaa", true},
    Row{"((a|b){2}c){2}", "abcbac", true},
    Row{"(?:\\bmodel\\.layers\\.[\\d]{1,}\\.(?:self_attn|mlp)\\.(?:(?:q_proj|k_proj)))", "model.layers.0.self_attn.q_proj", true},
    Row{"(?:\\bmodel\\.layers\\.[\\d]{1,}\\.(?:self_attn|mlp)\\.(?:(?:q_proj|k_proj)))", "xmodel.layers.0.self_attn.q_proj", false},
    Row{".*\\bq_proj\\Z", "model.layers.0.self_attn.q_proj", true},
    Row{".*\\bproj\\Z", "model.layers.0.self_attn.q_proj", false},
    Row{".*\\Bproj", "model.layers.0.self_attn.q_proj", true},
    Row{"\\Amodel.*", "model.layers.0.self_attn.q_proj", true},
    Row{".*\\A", "model.layers.0.self_attn.q_proj", false},
    Row{"(?i)MODEL\\..*Q_PROJ", "model.layers.0.self_attn.q_proj", true},
    Row{"(?i)[^M].*", "model.layers.0.self_attn.q_proj", false},
    Row{"(?i)[^x-z].*", "model.layers.0.self_attn.q_proj", true},
    Row{"(?i)[A-C]+", "aBc", true},
    Row{"MODEL\\..*", "model.layers.0.self_attn.q_proj", false},
    Row{"(?s).*", "a\nb", true},
    Row{".*", "a\nb", false},
    Row{"(?is)A.B", "a\nb", true},
    Row{"(?P<layer>model)\\..*_proj", "model.layers.0.self_attn.q_proj", true},
    Row{".*(?<=self_attn\\.)(q|v)_proj", "model.layers.0.self_attn.q_proj", true},
    Row{".*(?<=mlp\\.)(q|v)_proj", "model.layers.0.self_attn.q_proj", false},
    Row{".*(?<!mlp\\.)(q|v)_proj", "model.layers.0.self_attn.q_proj", true},
    Row{".*(?<!attn\\.)(q|v)_proj", "model.layers.0.self_attn.q_proj", false},
    Row{"a(?<=a)b", "ab", true},
    Row{"(?<=a)b", "b", false},
    Row{"(?<!a)b", "b", true},
    Row{".*\\.(?<=[0-4]\\.)self.*", "model.layers.0.self_attn.q_proj", true},
    Row{".*\\.(?<=[5-9]\\.)self.*", "model.layers.0.self_attn.q_proj", false},
    Row{"(?<=(a|b))c", "c", false},
    Row{"x(?<=(x|y))z", "xz", true},
    Row{"(a|(b|c|d)e|){2}x", "deax", true},
    Row{"(?:(?:a|b|c)|d|(?:e|f|g)h){3}", "cghd", true},
    Row{"(?:(?:a|b|c)|d|(?:e|f|g)h){3}", "cgd", false},
    Row{"\\b\\w+\\b", "q_proj", true},
    Row{"\\w+\\b\\.\\b\\w+", "a.b", true},
    Row{"\\w+\\B\\w+", "ab", true},
};

TEST(AdapterPattern, MatchesWhatPythonFullmatchMatches) {
    for (const Row& row : rows) {
        const auto pattern = Pattern::compile(row.pattern);
        ASSERT_TRUE(pattern.has_value()) << row.pattern << ": " << pattern.error();
        EXPECT_EQ(matches(*pattern, row.text), row.matches) << row.pattern << " on " << row.text;
    }
}

// Pins: each alternative counted as a level of nesting, so a pattern that lists 60 layers was refused.
TEST(AdapterPattern, AlternativesAreNotNested) {
    std::string layers = "0";
    for (int layer = 1; layer < 200; ++layer) layers += "|" + std::to_string(layer);
    const auto pattern = Pattern::compile(".*\\.layers\\.(?:" + layers + ")\\..*_proj");
    ASSERT_TRUE(pattern.has_value()) << pattern.error();
    for (const char* layer : {"0", "51", "100", "199"}) {
        EXPECT_TRUE(matches(*pattern, std::string("model.layers.") + layer + ".self_attn.q_proj")) << layer;
    }
    EXPECT_FALSE(matches(*pattern, "model.layers.200.self_attn.q_proj"));
    EXPECT_FALSE(matches(*pattern, "model.layers.1990.self_attn.q_proj"));
    std::string most = "a";
    while (Pattern::compile(most + "|a")) most += "|a";
    EXPECT_GT(most.size(), 3000U) << "three instructions each, of 5,000";
}

// \b and lookbehind see the text before the tail, as in PEFT's (.*\.)?(PATTERN)$.
TEST(AdapterPattern, ATailSeesWhatIsBeforeIt) {
    const std::string path = "model.layers.1.self_attn.q_proj";
    EXPECT_TRUE(matches_tail("\\bq_proj", path));
    EXPECT_TRUE(matches_tail("(?<=attn\\.)q_proj", path));
    EXPECT_FALSE(matches_tail("(?<=mlp\\.)q_proj", path));
}

TEST(AdapterPattern, ATailBeginsAfterADotAndTheLineBeginsOnlyOnce) {
    const std::string path = "model.layers.1.self_attn.q_proj";
    EXPECT_TRUE(matches_tail("q_proj", path));
    EXPECT_FALSE(matches_tail("proj", path));
    EXPECT_TRUE(matches_tail("layers.1.self_attn.q_proj", path));
    EXPECT_TRUE(matches_tail("^model.*q_proj", path));
    EXPECT_FALSE(matches_tail("^layers.*q_proj", path));
    EXPECT_FALSE(matches_tail("layers", path));
}

TEST(AdapterPattern, WhatIsNotSupportedIsRefusedWithTheReason) {
    const auto error = [](const char* text) {
        const auto pattern = Pattern::compile(text);
        return pattern ? "accepted" : pattern.error();
    };
    EXPECT_THAT(error("(a"), testing::HasSubstr("closing parenthesis"));
    EXPECT_THAT(error("a)"), testing::HasSubstr("opening parenthesis"));
    EXPECT_THAT(error("[a"), testing::HasSubstr("closing ]"));
    EXPECT_THAT(error("*a"), testing::HasSubstr("nothing to repeat"));
    EXPECT_THAT(error("a**"), testing::HasSubstr("repetition"));
    EXPECT_THAT(error("(a)\\1"), testing::HasSubstr("\\1"));
    EXPECT_THAT(error("(?P=x)a"), testing::HasSubstr("supported are (?:...), (?P<name>...), lookahead and lookbehind"));
    EXPECT_THAT(error("(?P<x"), testing::HasSubstr("must end with >"));
    EXPECT_THAT(error("(?>a)b"), testing::HasSubstr("supported are (?:...), (?P<name>...), lookahead and lookbehind"));
    EXPECT_THAT(error("a(?i)b"), testing::HasSubstr("supported are (?:...), (?P<name>...), lookahead and lookbehind"));
    EXPECT_THAT(error("(?x)a"), testing::HasSubstr("supported are (?:...), (?P<name>...), lookahead and lookbehind"));
    EXPECT_THAT(error("(?!(?=a))b"), testing::HasSubstr("nested lookaround"));
    EXPECT_THAT(error("(?<=a+)b"), testing::HasSubstr("fixed width"));
    EXPECT_THAT(error("(?<!a|bc)d"), testing::HasSubstr("fixed width"));
    EXPECT_THAT(error("[\\b]"), testing::HasSubstr("\\b"));
    EXPECT_THAT(error("a{3,1}"), testing::HasSubstr("wrong order"));
    EXPECT_THAT(error("(((a{100}){100}){100})"), testing::HasSubstr("more than 5000 instructions"));
    EXPECT_THAT(error(std::string(1000, '(').c_str()), testing::HasSubstr("nested more than 50 deep"));
    EXPECT_THAT(error("a\\"), testing::HasSubstr("backslash"));
}

// Pins: patterns on which backtracking matchers take exponential time are fast here.
TEST(AdapterPattern, NestedRepetitionsTakeNoExponentialTime) {
    const auto pattern = Pattern::compile("(((a*)*)*)*b");
    ASSERT_TRUE(pattern.has_value());
    EXPECT_FALSE(matches(*pattern, std::string(2000, 'a')));
}

// Pins: a lookaround at each character of a long text takes time that grows with the square of both.
TEST(AdapterPattern, MatchingEndsWhenTheStepsAreUsedUp) {
    const auto pattern = Pattern::compile("(?:.(?=(?:.?.?.?.?.?.?.?.?){100}x))*");
    ASSERT_TRUE(pattern.has_value()) << pattern.error();
    MatchSteps steps{.left = 1'000'000};
    EXPECT_FALSE(pattern->matches(std::string(2000, 'a') + "x", steps));
    EXPECT_TRUE(steps.are_used_up());
    EXPECT_GT(steps.left, -1'000'000) << "they are counted before the work is done";
}

TEST(AdapterPattern, RandomPatternsNeverCrash) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    constexpr std::string_view alphabet = "ab.()[]{}|*+?^$\\-,123dwbBZ:=!<iP>";
    std::size_t accepted = 0;
    for (int i = 0; i < 20000; ++i) {
        std::string text;
        for (auto length = random() % 12; length > 0; --length) text += alphabet[random() % alphabet.size()];
        const auto pattern = Pattern::compile(text);
        if (!pattern) continue;
        ++accepted;
        MatchSteps steps;
        pattern->matches("abab", steps);
        pattern->matches_tail("a.b1.ab", steps);
    }
    EXPECT_GT(accepted, 100U);
}

}  // namespace
}  // namespace lorry
