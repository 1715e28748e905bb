// What a sequence's own tokens say of the next ones.
#include "engine/prompt_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace lorry::engine {
namespace {

using testing::ElementsAre;

// Characters are tokens.
class Text {
public:
    explicit Text(const std::string& prompt) {
        tokens_.assign(prompt.begin(), prompt.end());
        lookup_.extend(tokens_);
    }
    void draw(const std::string& text) {
        for (const char token : text) {
            tokens_.push_back(token);
            lookup_.extend(tokens_);
        }
    }
    std::string guess(std::int64_t count, double chance_least = 0.0) const {
        std::vector<TokenId> guesses;
        lookup_.guess(tokens_, {.count = count, .chance_least = chance_least}, guesses);
        return {guesses.begin(), guesses.end()};
    }

private:
    std::vector<TokenId> tokens_;
    PromptLookup lookup_;
};

TEST(PromptLookup, GuessesWhatFollowedTheLastTokensBefore) {
    Text text("the cat sat on the mat. A ca");
    EXPECT_EQ(text.guess(5), "t sat");
    text.draw("t ");
    EXPECT_EQ(text.guess(3), "sat");
    text.draw("m");
    EXPECT_EQ(text.guess(3), "at.") << "a cat did not go on so, but the mat did";
}

TEST(PromptLookup, PrefersTheLongestOccurrenceAndThenTheLatest) {
    EXPECT_EQ(Text("xab1 yab2 ab3 xab").guess(1), "1");
    EXPECT_EQ(Text("xab1 yab2 ab3 zab").guess(1), "3");
}

TEST(PromptLookup, GoesOnWithItsOwnGuessesWhereTheTextRepeatsItself) {
    EXPECT_EQ(Text("ababab").guess(5), "ababa");
    EXPECT_EQ(Text("zzz").guess(3), "zzz");
}

TEST(PromptLookup, KnowsNothingOfShortAndOfNewTexts) {
    EXPECT_EQ(Text("").guess(3), "");
    EXPECT_EQ(Text("a").guess(3), "");
    EXPECT_EQ(Text("abcdef").guess(3), "");
}

TEST(PromptLookup, GuessesFewerWhereAGuessIsLessLikely) {
    const Text text("abcdefghijklmnopqrstuvwxyz ab");
    EXPECT_EQ(text.guess(8, 0.35), "") << "two equal tokens say little";
    const Text longer("abcdefghijklmnopqrstuvwxyz abcdefgh");
    EXPECT_EQ(longer.guess(8, 0.35).size(), 2U) << "0.7, 0.49, 0.343";
    EXPECT_EQ(longer.guess(8, 0.0).size(), 8U);
}

// Pins: chances that only computed drafts would change would never rise again once drafting has stopped.
TEST(PromptLookup, LearnsFromTokensThatItDidNotGuess) {
    const std::string verse = "one two three four five six seven eight nine ten. ";
    Text wrong("ab1ab2ab3ab4ab5ab6ab7");
    for (const char* const next : {"abA", "abB", "abC", "abD", "abE", "abF", "abG", "abH"}) wrong.draw(next);
    wrong.draw("ab");
    EXPECT_EQ(wrong.guess(1, 0.2), "") << "two equal tokens were never right";
    Text right(verse);
    right.draw(verse + verse + verse + "one two three");
    EXPECT_GT(right.guess(16, 0.5).size(), 12U);
}

// Pins: the table grew and lost what it had, or the first tokens after a growth.
TEST(PromptLookup, FindsEverythingAgainAfterItHasGrown) {
    const std::uint32_t seed = std::random_device{}();
    std::cout << "seed " << seed << "\n";
    std::mt19937 random(seed);
    std::vector<TokenId> tokens;
    PromptLookup lookup;
    std::vector<TokenId> guesses;
    for (int i = 0; i < 3000; ++i) {
        tokens.push_back(static_cast<TokenId>(random() % 100'000));
        if (i % 3 == 0) lookup.extend(tokens);
    }
    for (std::size_t from = 0; from + 10 < tokens.size(); from += 97) {
        std::vector<TokenId> more = tokens;
        PromptLookup copy = lookup;
        more.insert(more.end(), tokens.begin() + static_cast<std::ptrdiff_t>(from), tokens.begin() + static_cast<std::ptrdiff_t>(from + 4));
        copy.extend(more);
        copy.guess(more, {.count = 3, .chance_least = 0.0}, guesses);
        EXPECT_THAT(guesses, ElementsAre(tokens[from + 4], tokens[from + 5], tokens[from + 6])) << "from " << from;
    }
}

}  // namespace
}  // namespace lorry::engine
