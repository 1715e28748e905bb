// What may be drawn: allowed tokens and bad words, and how a thought keeps a grammar and stop texts away until it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine.h"
#include "tests/support/hash_engine.h"
#include "tests/support/test_grammar.h"

namespace lorry::engine {
namespace {

using tests::grammar_end;
using tests::grammar_of;
using tests::hash_tokens;

// Parameter: how many steps may be queued.
class DrawnTokens : public testing::TestWithParam<std::int64_t> {
protected:
    // What becomes of requests that run together, in their order.
    std::vector<Result> run(std::vector<Request> requests) const {
        tests::HashEngine rig(GetParam(), 50, 200, {});
        std::vector<Result> results(requests.size());
        for (std::size_t i = 0; i < requests.size(); ++i) {
            requests[i].id = i;
            rig.engine->submit(std::move(requests[i]));
        }
        while (rig.engine->has_work()) {
            CHECK(rig.engine->step(rig.output), "an engine with work and no adapters always gets on");
            for (Result& result : rig.output.results) results[result.id] = std::move(result);
        }
        return results;
    }
    Result run(Request request) const { return std::move(run(std::vector{std::move(request)}).front()); }
};

std::vector<TokenId> prompt() {
    std::vector<TokenId> tokens;
    for (TokenId i = 0; i < 5; ++i) tokens.push_back((62 + i * 7) % 93);
    return tokens;
}

Request request_of(std::int64_t max_tokens, Drawing drawing) {
    return {.prompt = prompt(), .drawing = shared(std::move(drawing)), .max_tokens = max_tokens};
}

// The tokens of the tests' marks.
constexpr TokenId open_token = 7;   // "("
constexpr TokenId close_token = 8;  // ")"
Drawing thinking_drawing(ThoughtState begin, std::optional<std::int64_t> budget) {
    static constexpr ThoughtMarks marks{.start = "(", .end = ")"};
    Drawing drawing{.end_tokens = {grammar_end}};
    drawing.thinking =
        Thinking{.marks = &marks, .begin = begin, .start_tokens = {open_token}, .end_tokens = {close_token}, .budget = budget};
    drawing.allowed.assign((tests::hash_vocabulary + 31) / 32, ~0U);
    return drawing;
}

TEST_P(DrawnTokens, AGrammarBeginsAfterTheThoughtWhichItsBudgetEnds) {
    for (const std::int64_t budget : {0, 1, 6}) {
        Drawing drawing = thinking_drawing(ThoughtState::thinking, budget);
        // A thought of the letters a to z, so that it does not end by itself.
        drawing.allowed.assign(drawing.allowed.size(), 0U);
        for (TokenId token = 64; token < 90; ++token) drawing.allowed[static_cast<std::size_t>(token) / 32] |= 1U << (token % 32);
        drawing.grammar = grammar_of("[x-z]{3}");
        const Result result = run(request_of(30, std::move(drawing)));
        ASSERT_FALSE(result.error);
        EXPECT_EQ(result.tokens.size(), static_cast<std::size_t>(budget) + 1 + 3);
        EXPECT_EQ(result.thought_tokens, budget + 1);
        EXPECT_EQ(result.tokens[static_cast<std::size_t>(budget)], close_token);
        EXPECT_THAT(result.text.substr(result.text.size() - 3), testing::MatchesRegex("[x-z]{3}"));
        EXPECT_EQ(result.finish, FinishReason::stop);
    }
}

TEST_P(DrawnTokens, AnAnswerWithAGrammarMayBeginWithAThought) {
    std::vector<Request> requests;
    for (const ThoughtState begin : {ThoughtState::undecided, ThoughtState::answering}) {
        Drawing drawing = thinking_drawing(begin, 2);
        drawing.grammar = grammar_of("[x-z]{3}");
        drawing.logit_bias = {{open_token, 100.0F}};
        requests.push_back(request_of(30, std::move(drawing)));
    }
    const std::vector<Result> results = run(std::move(requests));
    EXPECT_EQ(results[0].tokens.front(), open_token) << "the grammar has no such token";
    EXPECT_EQ(results[0].tokens.at(3), close_token);
    EXPECT_THAT(results[0].text.substr(results[0].text.find(')') + 1), testing::MatchesRegex("[x-z]{3}"));
    EXPECT_THAT(results[1].text, testing::MatchesRegex("[x-z]{3}")) << "the prompt closed its thought";
}

// Pins: an answer with a grammar could not begin with a thought whose mark is several tokens, such as Granite's.
TEST_P(DrawnTokens, TheRestOfAMarkOfSeveralTokensIsForcedUnlessTheAnswerMayBeginAlike) {
    static constexpr ThoughtMarks marks{.start = "(*", .end = ")"};
    std::vector<Request> requests;
    for (const char* regex : {"[x-z]{3}", "[(][x-z]{3}"}) {
        Drawing drawing = thinking_drawing(ThoughtState::undecided, 2);
        drawing.thinking->marks = &marks;
        drawing.thinking->start_tokens = {open_token, open_token + 2};
        drawing.grammar = grammar_of(regex);
        requests.push_back(request_of(30, std::move(drawing)));
    }
    const std::vector<Result> results = run(std::move(requests));
    EXPECT_THAT(results[0].tokens, testing::SizeIs(2 + 2 + 1 + 3));
    EXPECT_THAT(results[0].text, testing::StartsWith("(*"));
    EXPECT_THAT(results[0].text.substr(results[0].text.find(')') + 1), testing::MatchesRegex("[x-z]{3}"));
    EXPECT_EQ(results[0].thought_tokens, 2 + 2 + 1);
    EXPECT_THAT(results[1].text, testing::MatchesRegex("[(][x-z]{3}"));
}

// Pins: such an answer was a thought for those who read it, and the structure had applied to the thought.
TEST_P(DrawnTokens, AnAnswerThatItsGrammarBeginsWithTheMarkOfAThoughtIsOneAndTheAnswerFollows) {
    static constexpr ThoughtMarks marks{.start = "(*", .end = ")"};
    const char* const regexes[] = {"[(][*][x-z]{3}", "([(][*]|[a-z][*])[x-z]{3}", "[(][*]", "[(][(][x-z]{3}"};
    std::vector<Request> requests;
    for (const char* regex : regexes) {
        Drawing drawing = thinking_drawing(ThoughtState::undecided, 2);
        drawing.thinking->marks = &marks;
        drawing.thinking->start_tokens = {open_token, open_token + 2};
        drawing.grammar = grammar_of(regex);
        drawing.logit_bias = {{open_token, 100.0F}};
        requests.push_back(request_of(30, std::move(drawing)));
    }
    Drawing free = thinking_drawing(ThoughtState::undecided, 2);
    free.grammar = grammar_of("[(][ -~]{5}");
    free.logit_bias = {{open_token, 100.0F}};
    requests.push_back(request_of(30, std::move(free)));
    const std::vector<Result> results = run(std::move(requests));
    const auto answer = [&](std::size_t i) { return results[i].text.substr(results[i].text.find(')') + 1); };
    for (const std::size_t thinks : {0U, 1U, 2U, 4U}) {
        EXPECT_FALSE(results[thinks].error);
        EXPECT_EQ(results[thinks].finish, FinishReason::stop);
        EXPECT_GT(results[thinks].thought_tokens, 0) << thinks;
        EXPECT_THAT(answer(thinks), testing::MatchesRegex(thinks == 4 ? "[(][ -~]{5}" : regexes[thinks])) << results[thinks].text;
    }
    EXPECT_EQ(results[3].thought_tokens, 0);
    EXPECT_THAT(results[3].text, testing::MatchesRegex("[(][(][x-z]{3}"));
}

// The structure says what white space an answer has.
TEST_P(DrawnTokens, WhiteSpaceOfTheTokenThatEndsAThoughtIsNoPartOfAnAnswerWithAGrammar) {
    static constexpr ThoughtMarks marks{.start = "(", .end = "\n"};
    const std::vector<TokenId> end = *tests::gpt2_tokenizer().encode("\n    ", false);
    ASSERT_EQ(end.size(), 1U);
    Drawing drawing = thinking_drawing(ThoughtState::thinking, std::nullopt);
    drawing.thinking->marks = &marks;
    drawing.allowed.assign(drawing.allowed.size(), 0U);
    for (const TokenId token : {end[0], TokenId{87}, TokenId{88}, TokenId{89}}) {  // x, y and z
        drawing.allowed[static_cast<std::size_t>(token) / 32] |= 1U << (token % 32);
    }
    drawing.grammar = grammar_of("[x-z]{3}");
    const Result result = run(request_of(60, std::move(drawing)));
    ASSERT_FALSE(result.error);
    EXPECT_EQ(result.finish, FinishReason::stop);
    EXPECT_THAT(result.text, testing::MatchesRegex("( |\n|x|y|z)*[xyz]\n[x-z]{3}"));
}

TEST_P(DrawnTokens, StopTextsAreForTheAnswerNotForTheThought) {
    Drawing drawing = thinking_drawing(ThoughtState::thinking, 4);
    drawing.sampling.stop = {"a"};
    // Only "a" and the mark.
    drawing.allowed.assign(drawing.allowed.size(), 0U);
    drawing.allowed[64 / 32] = 1U;
    const Result result = run(request_of(10, std::move(drawing)));
    EXPECT_EQ(result.text, "aaaa)");
    EXPECT_EQ(result.finish, FinishReason::stop);
}

TEST_P(DrawnTokens, BadWordsAreNotDrawnAfterTheirBeginning) {
    const auto tokens = hash_tokens(prompt(), 10);
    Drawing drawing;
    drawing.allowed.assign((tests::hash_vocabulary + 31) / 32, ~0U);
    drawing.bad_words = {{tokens[2], tokens[3], tokens[4]}, {tokens[5], tokens[7]}};
    const Result result = run(request_of(10, std::move(drawing)));
    EXPECT_EQ(std::vector(result.tokens.begin(), result.tokens.begin() + 4), std::vector(tokens.begin(), tokens.begin() + 4));
    EXPECT_NE(result.tokens[4], tokens[4]);
}

TEST_P(DrawnTokens, WhereNoTokenMayBeDrawnTheJobFails) {
    Drawing drawing;
    drawing.allowed = {1U << 20U};
    drawing.bad_words = {{20, 20}};
    const Result result = run(request_of(10, std::move(drawing)));
    ASSERT_TRUE(result.error);
    EXPECT_EQ(result.error->code, schema::ErrorCode::invalid_value);
}

// Which letters came at which of the last 900 places is a state of its own: more than an answer may have.
std::shared_ptr<const Grammar> grammar_that_grows() {
    std::string regex = "[a-z]*a[a-z]{900}";
    for (const char letter : std::string_view("bcdefghijklmnopqrstuvwxyz")) regex += std::string("|[a-z]*") + letter + "[a-z]{900}";
    return grammar_of(regex);
}

// Pins: a grammar that fails in mid-answer ended the step's other answers, or the answer without an error.
TEST_P(DrawnTokens, AGrammarThatBecomesTooComplexFailsItsOwnAnswerOnly) {
    std::vector<Request> requests;
    for (int i = 0; i < 3; ++i) {
        Drawing drawing{.end_tokens = {grammar_end}, .grammar = i == 1 ? grammar_that_grows() : grammar_of("[a-z]{150}")};
        requests.push_back(request_of(190, std::move(drawing)));
    }
    requests.push_back(request_of(150, Drawing{}));
    const std::vector<Result> results = run(requests);
    const Result& failed = results[1];
    ASSERT_TRUE(failed.error);
    EXPECT_EQ(failed.error->code, schema::ErrorCode::invalid_structure);
    EXPECT_THAT(failed.error->message, testing::StartsWith("the answer could not go on as its structure demands: "));
    EXPECT_THAT(failed.error->message, testing::EndsWith("; simplify the structure"));
    EXPECT_GT(failed.tokens.size(), 1U) << "it failed in mid-answer";
    for (const std::size_t other : {0U, 2U}) {
        EXPECT_FALSE(results[other].error);
        EXPECT_THAT(results[other].text, testing::MatchesRegex("[a-z]{150}"));
        EXPECT_EQ(results[other].finish, FinishReason::stop);
    }
    EXPECT_EQ(results[3].tokens, hash_tokens(prompt(), 150));
}

TEST_P(DrawnTokens, ATokenThatEndsAThoughtAndBeginsTheAnswerFailsAnAnswerWithAGrammar) {
    static constexpr ThoughtMarks marks{.start = "(", .end = "h"};
    const std::vector<TokenId> he = *tests::gpt2_tokenizer().encode("he", false);
    ASSERT_EQ(he.size(), 1U);
    std::vector<Request> requests;
    for (const bool has_grammar : {true, false}) {
        Drawing drawing = thinking_drawing(ThoughtState::thinking, std::nullopt);
        drawing.thinking->marks = &marks;
        drawing.allowed.assign(drawing.allowed.size(), 0U);
        drawing.allowed[static_cast<std::size_t>(he[0]) / 32] |= 1U << (he[0] % 32);
        if (has_grammar) drawing.grammar = grammar_of("[a-z]{9}");
        requests.push_back(request_of(5, std::move(drawing)));
    }
    const std::vector<Result> results = run(std::move(requests));
    ASSERT_TRUE(results[0].error);
    EXPECT_EQ(results[0].error->code, schema::ErrorCode::invalid_structure);
    EXPECT_THAT(results[0].error->message, testing::StartsWith("one token ended the thought and began the answer"));
    EXPECT_FALSE(results[1].error);
    EXPECT_EQ(results[1].text, "hehehehehe") << "without a grammar it is an answer like others";
}

INSTANTIATE_TEST_SUITE_P(StepsQueued, DrawnTokens, testing::Values(1, 2));

}  // namespace
}  // namespace lorry::engine
