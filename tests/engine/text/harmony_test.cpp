// Messages of the harmony format, well written and not, in pieces of any size.
#include "engine/text/harmony.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/support/harmony_text.h"

namespace lorry::engine {
namespace {

using tests::harmony_text;

// Each message as "kind:text", a function's name in brackets; an open one without its end. The text in pieces of so many bytes.
std::string read(const std::string& text, std::size_t piece, ThoughtState begin = ThoughtState::undecided) {
    HarmonyReader reader(begin);
    std::string told;
    const auto take = [&](const std::vector<HarmonyPart>& parts) {
        for (const HarmonyPart& part : parts) {
            if (part.begins) told += part.is_thought ? "thought" : "content";
            if (part.begins) told += part.function.empty() ? ":" : "(" + part.function + "):";
            told += part.text;
            if (part.ends) told += "; ";
        }
    };
    for (std::size_t at = 0; at < text.size(); at += piece) take(reader.push(text.substr(at, piece)));
    take(reader.finish());
    return told;
}

void expect_read(const std::string& written, const std::string& expected, ThoughtState begin = ThoughtState::undecided) {
    const std::string text = harmony_text(written);
    for (const std::size_t piece : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{5}, text.size() + 1}) {
        EXPECT_EQ(read(text, piece, begin), expected) << written << " in pieces of " << piece;
    }
}

TEST(HarmonyReader, ReadsMessagesByTheirChannelAndRecipient) {
    expect_read("<|channel|>analysis<|message|>2 + 2?<|end|><|start|>assistant<|channel|>final<|message|>4", "thought:2 + 2?; content:4; ");
    expect_read("<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\":1}", "content(add):{\"a\":1}; ");
    expect_read(" to=functions.add<|channel|>commentary json<|message|>{}<|call|>", "content(add):{}; ");
    expect_read(
        "<|channel|>analysis<|message|>x<|end|><|start|>assistant to=functions.a.b-c<|channel|>commentary<|constrain|>json<|message|>{}",
        "thought:x; content(a.b-c):{}; ");
    expect_read("<|channel|>commentary<|message|>First I look.<|end|>", "content:First I look.; ");
    expect_read("<|channel|>analysis to=functions.add code<|message|>{}", "thought(add):{}; ");
    expect_read("<|channel|>analysis to=python code<|message|>1", "thought:1; ");
    expect_read("<|channel|>commentary to=browser.open<|message|>{}", "content:{}; ");
}

TEST(HarmonyReader, BeginsWhereThePromptEnds) {
    expect_read("4<|return|>", "content:4; ", ThoughtState::answering);
    expect_read("hm<|end|><|start|>assistant<|channel|>final<|message|>4", "thought:hm; content:4; ", ThoughtState::thinking);
    expect_read("", "");
    expect_read("", "content:; ", ThoughtState::answering);
}

TEST(HarmonyReader, ReadsWhatHasOddHeadersOrNone) {
    expect_read("Hello <b>you</b>", "content:Hello <b>you</b>; ");
    expect_read("today", "content:today; ");  // it begins as "to=" does
    expect_read("<|message|>plain", "content:plain; ");
    expect_read("<|start|>assistant<|message|>plain<|end|>", "content:plain; ");
    expect_read("<|channel|>  analysis \n<|message|>x", "thought:x; ");
    expect_read("<|channel|>confidence<|message|>x", "content:x; ");
    expect_read("<|channel|><|message|>x", "content:x; ");
    expect_read("<|channel|>final<|channel|>analysis<|message|>x", "thought:x; ");
    expect_read("<|channel|>commentary functions.add<|message|>{}", "content(add):{}; ");
    expect_read("<|channel|>analysis<|message|>x<|channel|>final<|message|>y", "thought:x; content:y; ");
    expect_read("<|channel|>analysis<|message|>x<|start|>assistant<|channel|>final<|message|>y", "thought:x; content:y; ");
    expect_read("<|channel|>analysis<|message|>x<|end|><|channel|>final<|message|>y", "thought:x; content:y; ");
    expect_read("<|channel|>analysis<|message|>x<|end|>y", "thought:x; content:y; ");
    expect_read("<|channel|>final<|message|>a<|message|>b<|constrain|>c", "content:abc; ");
    expect_read("<|channel|>final<|message|>a<|end|><|start|>functions.add to=assistant<|channel|>commentary<|message|>5",
                "content:a; content:5; ");
    expect_read("<|end|><|end|><|start|><|start|><|call|><|return|>", "");
}

TEST(HarmonyReader, LeavesOutAHeaderThatIsCutOffButNotWordsInItsPlace) {
    expect_read("<|channel|>final Hello you", "content:Hello you; ");
    expect_read("<|start|>assistant Hello you<|end|>", "content:Hello you; ");
    expect_read("<|channel|>analysis Let me see<|end|><|start|>assistant<|channel|>final<|message|>x", "thought:Let me see; content:x; ");
    expect_read("<|channel|>comm", "");
    expect_read("<|channel|>commentary to=functions.add <|constrain|>js", "");
    expect_read(" to=functions.add", "");
    expect_read("<|channel|>final<|message|>x<|end|><|start|>assist", "content:x; ");
}

// A model that explains the format writes its marks with ordinary tokens.
TEST(HarmonyReader, TakesNoTextForAMark) {
    const std::string spelled = "End with <|end|>, not with <|return|>.";
    EXPECT_EQ(read(harmony_text("<|channel|>final<|message|>") + spelled, 1), "content:" + spelled + "; ");
    EXPECT_EQ(read(harmony_text("<|message|>") + "\uFDD0<|en|\uFDD0", 1), "content:\uFDD0<|en|\uFDD0; ");
}

// Whatever comes, the parts do not depend on the pieces, and have no marks.
TEST(HarmonyReader, ReadsAnyTextTheSameInPiecesOfAnySize) {
    std::vector<std::string> words{"analysis",  "final",  "commentary", " to=functions.add", "assistant", " ", "x",
                                   "{\"a\":1}", "\uFDD0", "to="};
    for (const std::string_view mark : harmony_marks) words.push_back(harmony_text_of(mark));
    constexpr std::uint64_t seed = 20261127;
    std::mt19937_64 random(seed);
    for (int i = 0; i < 3'000; ++i) {
        std::string text;
        for (std::uint64_t count = random() % 14; count > 0; --count) text += words[random() % words.size()];
        const std::string whole = read(text, text.size() + 1);
        for (const std::size_t piece : {std::size_t{1}, std::size_t{2}, std::size_t{5}})
            ASSERT_EQ(read(text, piece), whole) << text << ", seed " << seed;
        for (const std::string_view mark : harmony_marks) ASSERT_EQ(whole.find(mark), std::string::npos) << text << ", seed " << seed;
    }
}

}  // namespace
}  // namespace lorry::engine
