// Sequences whose text is made of harmony's messages: where a grammar, stop texts and a budget apply. What the model draws is a script.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/sequence.h"
#include "tests/support/harmony_text.h"
#include "tests/support/harmony_tokenizer.h"
#include "tests/support/hash_model.h"

namespace lorry::engine {
namespace {

using tests::harmony_text;
using tests::harmony_token;
using tests::harmony_tokenizer;

constexpr ThoughtMarks marks_of_harmony{.start = "<|channel|>analysis<|message|>",
                                        .end = "<|end|>",
                                        .harmony = true,
                                        .next = "<|start|>assistant",
                                        .answer = "<|channel|>final<|message|>"};

std::vector<TokenId> harmony_tokens(std::string_view text) { return harmony_tokenizer().encode(text, false).value(); }

Drawing messages_drawing(const std::string& regex = "", std::optional<std::int64_t> budget = std::nullopt) {
    Drawing drawing{.end_tokens = {harmony_token("<|return|>"), harmony_token("<|call|>")}};
    if (!regex.empty()) {
        GrammarCompiler compiler(harmony_tokenizer(), tests::hash_vocabulary, drawing.end_tokens);
        drawing.grammar = *compiler.compile({.kind = schema::Structure::Kind::regex, .text = regex});
    }
    drawing.allowed.assign((tests::hash_vocabulary + 31) / 32, ~0U);
    drawing.thinking = Thinking{.marks = &marks_of_harmony,
                                .start_tokens = harmony_tokens(marks_of_harmony.start),
                                .end_tokens = harmony_tokens(marks_of_harmony.end),
                                .next_tokens = harmony_tokens(marks_of_harmony.next),
                                .answer_tokens = harmony_tokens(marks_of_harmony.answer),
                                .budget = budget};
    for (const std::string_view mark : harmony_marks)
        drawing.shown_tokens.push_back({.token = harmony_token(mark), .text = harmony_text_of(mark)});
    return drawing;
}

class Script {
public:
    explicit Script(Drawing drawing, bool force_together = true)
        : sequence_(request_of(std::move(drawing)), 0, {}, harmony_tokenizer(), {}, force_together) {}

    bool may_draw(std::string_view token) {
        const TokenId id = harmony_tokens(token).front();
        const auto allowed = sequence_.allowed_tokens();
        const auto word = static_cast<std::size_t>(id) / 32;
        return allowed.empty() || (word < allowed.size() && (allowed[word] >> (id % 32) & 1U) != 0);
    }
    // Draws the tokens of a text, one by one. True if the sequence has ended.
    bool draw(std::string_view text) {
        for (const TokenId token : harmony_tokens(text)) {
            EXPECT_TRUE(may_draw(harmony_tokenizer().decode(std::vector{token}, false))) << text;
            if (sequence_.accept({.token = token, .logprob = 0.0F})) return true;
        }
        return false;
    }
    std::string written() const { return harmony_tokenizer().decode(sequence_.output(), false); }
    Sequence& sequence() { return sequence_; }

private:
    static Request request_of(Drawing drawing) { return {.prompt = {1, 2}, .drawing = shared(std::move(drawing)), .max_tokens = 300}; }
    Sequence sequence_;
};

void choose(Script& script, const std::string& channel) {
    EXPECT_TRUE(script.may_draw("analysis"));
    EXPECT_TRUE(script.may_draw("final"));
    EXPECT_FALSE(script.may_draw("commentary"));
    EXPECT_FALSE(script.sequence().accept({.token = harmony_tokens("<|channel|>" + channel).at(1), .logprob = 0.0F}));
    EXPECT_TRUE(script.written().ends_with("<|channel|>" + channel + "<|message|>"));
}

TEST(HarmonySequence, AGrammarIsForTheFinalMessageAfterAnyNumberOfThoughts) {
    Script script(messages_drawing("[x-z]{3}"));
    EXPECT_EQ(script.written(), "<|channel|>") << "it begins both";
    for (int i = 0; i < 2; ++i) {
        choose(script, "analysis");
        EXPECT_FALSE(script.may_draw("<|return|>")) << "a thought that ended the text would leave no answer";
        EXPECT_FALSE(script.draw("hm 12"));
        EXPECT_FALSE(script.draw("<|end|>"));
        EXPECT_TRUE(script.written().ends_with("<|end|><|start|>assistant<|channel|>"));
    }
    choose(script, "final");
    EXPECT_FALSE(script.may_draw("a"));
    EXPECT_FALSE(script.may_draw("<|end|>"));
    EXPECT_TRUE(script.draw("xyz"));
    const Result result = script.sequence().take_result();
    const std::string thought = "<|channel|>analysis<|message|>hm 12<|end|>";
    const std::string next = "<|start|>assistant";
    EXPECT_EQ(result.text, harmony_text(thought + next + thought + next + "<|channel|>final<|message|>xyz"));
    EXPECT_EQ(result.finish, FinishReason::stop);
    EXPECT_EQ(result.thought_tokens, static_cast<std::int64_t>(harmony_tokens(thought + next + thought).size()));
}

// As with log-probabilities: each token that is forced is drawn in its turn.
TEST(HarmonySequence, ForcedTokensOfHeadersMayBeDrawnOneByOne) {
    Script script(messages_drawing("[x-z]{3}"), false);
    EXPECT_EQ(script.written(), "");
    EXPECT_FALSE(script.may_draw("analysis"));
    EXPECT_FALSE(script.draw("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>"));
    EXPECT_TRUE(script.draw("xyz"));
}

TEST(HarmonySequence, AThoughtThatUsesUpTheBudgetIsEndedAndNoneFollows) {
    Script script(messages_drawing("", 4));
    EXPECT_FALSE(script.draw("<|channel|>analysis<|message|>a"));
    EXPECT_FALSE(script.draw("<|end|><|start|>assistant<|channel|>analysis<|message|>"));
    EXPECT_FALSE(script.draw("bc")) << "a thought's end counts";
    EXPECT_TRUE(script.written().ends_with("bc<|end|><|start|>assistant"));
    EXPECT_FALSE(script.draw("<|channel|>"));
    EXPECT_FALSE(script.may_draw("analysis"));
    EXPECT_TRUE(script.may_draw("commentary"));
    EXPECT_FALSE(script.draw("final<|message|>"));
    EXPECT_TRUE(script.may_draw("analysis")) << "here it is a word";
    EXPECT_TRUE(script.draw("analysis<|return|>"));
    EXPECT_EQ(script.sequence().take_result().finish, FinishReason::stop);
}

TEST(HarmonySequence, ABudgetAndAGrammarLeadToTheFinalMessage) {
    Script script(messages_drawing("[x-z]{3}", 2));
    EXPECT_FALSE(script.sequence().accept({.token = harmony_tokens("<|channel|>analysis").at(1), .logprob = 0.0F}));
    EXPECT_FALSE(script.draw("ab"));
    EXPECT_TRUE(script.written().ends_with("ab<|end|><|start|>assistant<|channel|>final<|message|>"));
    EXPECT_TRUE(script.draw("xyz"));
}

TEST(HarmonySequence, StopTextsAreForContentNotForThoughtsOrHeaders) {
    Drawing drawing = messages_drawing();
    drawing.sampling.stop = {"a", "n"};
    drawing.allowed.clear();
    Script script(std::move(drawing));
    EXPECT_FALSE(script.draw("<|channel|>analysis<|message|>an"));
    EXPECT_FALSE(script.draw("<|end|><|start|>assistant<|channel|>final<|message|>"));
    EXPECT_FALSE(script.draw("xy"));
    EXPECT_TRUE(script.draw("a"));
    EXPECT_EQ(script.sequence().take_result().text,
              harmony_text("<|channel|>analysis<|message|>an<|end|><|start|>assistant<|channel|>final<|message|>xy"));
}

TEST(HarmonySequence, OnlyThoughtsCountAsThoughts) {
    Script script(messages_drawing());
    const std::string thought = "<|channel|>analysis<|message|>ab<|end|>";
    EXPECT_FALSE(script.draw(thought));
    EXPECT_FALSE(script.draw("<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"));
    const std::string more = "<|start|>assistant<|channel|>analysis<|message|>c<|end|>";
    EXPECT_FALSE(script.draw(more));
    EXPECT_TRUE(script.draw("<|start|>assistant<|channel|>final<|message|>d<|return|>"));
    EXPECT_EQ(script.sequence().take_result().thought_tokens,
              static_cast<std::int64_t>(harmony_tokens(thought).size() + harmony_tokens(more).size()));
}

// A budget may end a thought in the middle of a guess.
TEST(HarmonySequence, IsGuessedAheadOutsideThoughtsUnlessABudgetWaitsForTheNextOne) {
    for (const bool has_budget : {false, true}) {
        Drawing drawing = messages_drawing("", has_budget ? std::optional<std::int64_t>(9) : std::nullopt);
        drawing.bad_words = {{1, 2}};
        Script script(std::move(drawing));
        const auto guesses = [&] {
            script.sequence().draft({.count = 4, .chance_least = 0.0});
            return !script.sequence().drafts.empty();
        };
        EXPECT_FALSE(script.draw("<|channel|>analysis<|message|>xyxyxyxy"));
        EXPECT_FALSE(guesses());
        EXPECT_FALSE(script.draw("<|end|><|start|>assistant<|channel|>final<|message|>xyxyxyxy"));
        EXPECT_EQ(guesses(), !has_budget);
    }
    Script held(messages_drawing("[xy]{40}", 2));
    EXPECT_FALSE(held.sequence().accept({.token = harmony_tokens("<|channel|>final").at(1), .logprob = 0.0F}));
    EXPECT_FALSE(held.draw("xyxyxyxyxyxy"));
    held.sequence().draft({.count = 4, .chance_least = 0.0});
    EXPECT_FALSE(held.sequence().drafts.empty()) << "no thought follows where the grammar has begun";
}

// A message that the prompt has begun is the answer.
TEST(HarmonySequence, AGrammarBeginsAtOnceInAMessageThatThePromptBegan) {
    Drawing drawing = messages_drawing("[x-z]{3}");
    drawing.thinking->begin = ThoughtState::answering;
    Script script(std::move(drawing));
    EXPECT_EQ(script.written(), "");
    EXPECT_TRUE(script.draw("xyz"));
}

// With skip_special_tokens off, the marks are marks all the same.
TEST(HarmonySequence, MarksAreShownOnceWhateverTheJobSaysOfSpecialTokens) {
    for (const bool skips : {true, false}) {
        Drawing drawing = messages_drawing();
        drawing.sampling.skip_special_tokens = skips;
        Script script(std::move(drawing));
        EXPECT_TRUE(script.draw("<|channel|>final<|message|>a<|return|>"));
        EXPECT_EQ(script.sequence().take_result().text, harmony_text("<|channel|>final<|message|>a"));
    }
}

}  // namespace
}  // namespace lorry::engine
