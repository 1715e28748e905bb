// Compares Detokenizer with Tokenizer::decode and with the stream decoder of the Python library.
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/text/vectors.h"
#include "tests/support/labels.h"

namespace lorry::engine {
namespace {

// No other thread takes part.
const tests::Labelled detokenizers_without_tsan{"*", {tests::Label::not_tsan}};

using namespace text_vectors;
using testing::ElementsAre;

std::vector<std::string> pieces_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special_tokens = false,
                                   const std::vector<TokenId>& prompt = {}) {
    Detokenizer detokenizer(tokenizer, skip_special_tokens);
    if (!prompt.empty()) detokenizer.prime(prompt);
    std::vector<std::string> pieces;
    for (const auto id : ids) pieces.push_back(detokenizer.push(id));
    if (auto rest = detokenizer.finish(); !rest.empty()) pieces.push_back(std::move(rest));
    return pieces;
}

std::string joined(const std::vector<std::string>& pieces) {
    std::string whole;
    for (const auto& piece : pieces) whole += piece;
    return whole;
}

std::vector<TokenId> find_all(const Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
    std::vector<TokenId> ids;
    for (const auto& token : tokens) ids.push_back(tokenizer.find(token).value());
    return ids;
}

class DetokenizerOfKind : public testing::TestWithParam<std::string> {
protected:
    const schema::Json vectors_ = vectors_of(GetParam());
    const Tokenizer tokenizer_ = Tokenizer::load(folder_of(GetParam()));
};

INSTANTIATE_TEST_SUITE_P(Kinds, DetokenizerOfKind, testing::ValuesIn(kinds), [](const auto& kind) { return kind.param; });

TEST_P(DetokenizerOfKind, PiecesJoinToTheDecodedText) {
    for (const auto& entry : list(vectors_, "decode")) {
        EXPECT_EQ(joined(pieces_of(tokenizer_, ids(entry, "ids"))), text(entry, "text")) << entry.dump();
        EXPECT_EQ(joined(pieces_of(tokenizer_, ids(entry, "ids"), true)), text(entry, "skipped")) << entry.dump();
    }
}

// The library's stream holds back a whole token whose last character is unfinished, and never returns text that ends in a real U+FFFD.
TEST_P(DetokenizerOfKind, PiecesComeNoLaterThanThePythonLibrarysStream) {
    for (const auto& entry : list(vectors_, "encode")) {
        const auto pieces = pieces_of(tokenizer_, ids(entry, "ids"));
        const auto& stream = list(entry, "stream");
        ASSERT_GE(pieces.size(), stream.size());
        std::string ours;
        std::string theirs;
        for (std::size_t i = 0; i < stream.size(); ++i) {
            ours += pieces[i];
            theirs += *stream[i].as_string();
            EXPECT_THAT(ours, testing::StartsWith(theirs)) << "token " << i << " of " << text(entry, "text");
        }
    }
}

TEST_P(DetokenizerOfKind, EveryPieceIsWholeCharacters) {
    for (const auto& entry : list(vectors_, "decode")) {
        for (const auto& piece : pieces_of(tokenizer_, ids(entry, "ids"))) EXPECT_TRUE(schema::is_valid_utf8(piece)) << entry.dump();
    }
}

TEST_P(DetokenizerOfKind, ContinuesAPrompt) {
    ASSERT_FALSE(list(vectors_, "continue").empty());
    for (const auto& entry : list(vectors_, "continue")) {
        EXPECT_EQ(joined(pieces_of(tokenizer_, ids(entry, "ids"), true, ids(entry, "prompt"))), text(entry, "text")) << entry.dump();
    }
}

TEST_P(DetokenizerOfKind, OutlivesTheTokenizer) {
    std::optional<Tokenizer> tokenizer = Tokenizer::load(folder_of(GetParam()));
    Detokenizer detokenizer(*tokenizer, false);
    tokenizer.reset();
    const auto& entry = list(vectors_, "decode").at(5);
    std::string whole;
    for (const auto id : ids(entry, "ids")) whole += detokenizer.push(id);
    EXPECT_EQ(whole + detokenizer.finish(), text(entry, "text"));
}

TEST(DetokenizerTest, AnEmojiComesWholeWithItsLastByte) {
    const auto byte_level = Tokenizer::load(folder_of("gpt2"));
    EXPECT_THAT(pieces_of(byte_level, find_all(byte_level, {"a", "ð", "Ł", "ĺ", "Ģ", "b"})), ElementsAre("a", "", "", "", "😀", "b"));
    const auto fallback = Tokenizer::load(folder_of("mistral"));
    EXPECT_THAT(pieces_of(fallback, find_all(fallback, {"a", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "b"})),
                ElementsAre("a", "", "", "", "😀", "b"));
}

TEST(DetokenizerTest, AnUnfinishedCharacterIsReplacedAtTheEnd) {
    const auto byte_level = Tokenizer::load(folder_of("gpt2"));
    EXPECT_THAT(pieces_of(byte_level, find_all(byte_level, {"a", "ð", "Ł"})), ElementsAre("a", "", "", "\uFFFD"));
    const auto fallback = Tokenizer::load(folder_of("llama2"));
    EXPECT_THAT(pieces_of(fallback, find_all(fallback, {"a", "<0xF0>", "<0x9F>"})), ElementsAre("a", "", "", "\uFFFD\uFFFD"));
}

TEST(DetokenizerTest, AnUnfinishedCharacterIsReplacedWhenSomethingElseFollows) {
    const auto byte_level = Tokenizer::load(folder_of("gpt2"));
    EXPECT_THAT(pieces_of(byte_level, find_all(byte_level, {"ð", "Ł", "a"})), ElementsAre("", "",
                                                                                          "\uFFFD"
                                                                                          "a"));
    const auto fallback = Tokenizer::load(folder_of("llama2"));
    EXPECT_THAT(pieces_of(fallback, find_all(fallback, {"<0xE2>", "<0x82>", "a"})), ElementsAre("", "",
                                                                                                "\uFFFD\uFFFD"
                                                                                                "a"));
}

// An endless run of broken bytes must neither be held back nor accumulate.
TEST(DetokenizerTest, BrokenBytesComeOutAsTheyAreKnownToBeBroken) {
    const auto byte_level = Tokenizer::load(folder_of("gpt2"));
    const auto lead = byte_level.find("ð").value();
    Detokenizer detokenizer(byte_level, false);
    EXPECT_EQ(detokenizer.push(lead), "");
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(detokenizer.push(lead), "\uFFFD");
}

TEST(DetokenizerTest, CharactersBeforeABrokenByteOfTheSameRunStay) {
    const auto fallback = Tokenizer::load(folder_of("llama2"));
    const auto ids = find_all(fallback, {"<0xC3>", "<0xA9>", "<0xFF>", "<0x41>", "a", "<0x41>"});
    EXPECT_THAT(pieces_of(fallback, ids), ElementsAre("", "é", "\uFFFD", "\uFFFD", "a", "A"));
}

TEST(DetokenizerTest, ACharacterBegunInThePromptIsCompleted) {
    const auto byte_level = Tokenizer::load(folder_of("gpt2"));
    EXPECT_THAT(pieces_of(byte_level, find_all(byte_level, {"ĺ", "Ģ"}), false, find_all(byte_level, {"a", "ð", "Ł"})),
                ElementsAre("", "😀"));
    const auto fallback = Tokenizer::load(folder_of("llama2"));
    EXPECT_THAT(pieces_of(fallback, find_all(fallback, {"<0x98>", "<0x80>"}), false,
                          find_all(fallback, {"<s>", "<0xC3>", "<0xA9>", "<0xF0>", "<0x9F>"})),
                ElementsAre("", "😀"));
}

TEST(DetokenizerTest, OnlyTheFirstTokenLosesItsLeadingSpace) {
    const auto fallback = Tokenizer::load(folder_of("llama2"));
    EXPECT_THAT(pieces_of(fallback, find_all(fallback, {"▁the", "▁the"})), ElementsAre("the", " the"));
    EXPECT_THAT(pieces_of(fallback, find_all(fallback, {"<s>", "▁the", "</s>", "▁the"}), true), ElementsAre("", "the", "", " the"));
    EXPECT_THAT(pieces_of(fallback, find_all(fallback, {"▁the"}), true, find_all(fallback, {"<s>", "▁the"})), ElementsAre(" the"));
    // A prompt of only special tokens has no text yet.
    EXPECT_THAT(pieces_of(fallback, find_all(fallback, {"▁the"}), true, find_all(fallback, {"<s>"})), ElementsAre("the"));
}

TEST(DetokenizerTest, IdsWithoutATokenAreNoText) {
    const auto byte_level = Tokenizer::load(folder_of("gpt2"));
    const auto beyond = static_cast<TokenId>(byte_level.vocabulary_size());
    const auto lead = find_all(byte_level, {"Ã", "©"});
    EXPECT_THAT(pieces_of(byte_level, {lead[0], beyond, -1, lead[1]}), ElementsAre("", "", "", "é"));
}

}  // namespace
}  // namespace lorry::engine
