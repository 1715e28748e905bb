// A sequence's bookkeeping: its tokens, their positions in its text, and its deltas.
#include "engine/sequence.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "schema/json.h"
#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/test_grammar.h"

namespace lorry::engine {
namespace {

// A sequence that draws `text` token by token, with its deltas and its result.
struct Drawn {
    Drawn(const std::string& text, schema::Sampling sampling, bool stream) : ids(*tests::gpt2_tokenizer().encode(text, false)) {
        sampling.logprobs = 0;
        Request request{
            .id = 1, .prompt = *tests::gpt2_tokenizer().encode("Say:", false), .drawing = shared({.sampling = std::move(sampling)})};
        request.max_tokens = static_cast<std::int64_t>(ids.size());
        request.stream = stream;
        Sequence sequence(std::move(request), 0, {}, tests::gpt2_tokenizer());
        for (const TokenId id : ids) {
            const bool ended = sequence.accept({.token = id, .logprob = -1.0F});
            if (stream) deltas.push_back(sequence.take_delta(ended));
            if (ended) break;
        }
        result = sequence.take_result();
    }
    std::vector<std::int64_t> begins() const {
        std::vector<std::int64_t> begins;
        for (const TokenLogprobs& entry : result.logprobs) begins.push_back(entry.text_begin);
        return begins;
    }
    // How many characters are complete before each token, counted from the tokens' bytes.
    std::vector<std::int64_t> expected() const {
        std::vector<std::int64_t> begins;
        std::string bytes;
        for (const TokenId id : ids) {
            std::string whole = bytes;
            while (!schema::is_valid_utf8(whole)) whole.pop_back();
            begins.push_back(schema::count_characters(whole));
            bytes += tests::gpt2_tokenizer().token_bytes(id);
        }
        return begins;
    }
    std::vector<TokenId> ids;
    std::vector<Delta> deltas;
    Result result;
};

// A mark's text came before the character that its token left unfinished.
TEST(Sequence, ShowsASpecialTokenAfterTheUnfinishedCharacterBeforeIt) {
    const Tokenizer& tokenizer = tests::gpt2_tokenizer();
    const TokenId mark = *tokenizer.find("<|endoftext|>");
    const TokenId begun = tokenizer.encode("ꙮ", false)->front();
    ASSERT_FALSE(schema::is_valid_utf8(tokenizer.token_bytes(begun)));
    Request request{.id = 1, .prompt = {1}, .drawing = shared({.shown_tokens = {{.token = mark, .text = "<|endoftext|>"}}})};
    request.max_tokens = 3;
    Sequence sequence(std::move(request), 0, {}, tokenizer);
    for (const TokenId token : {begun, mark, tokenizer.encode("a", false)->front()}) sequence.accept({.token = token, .logprob = 0.0F});
    EXPECT_EQ(sequence.take_result().text, "\uFFFD<|endoftext|>a");
}

TEST(Sequence, KeepsItsPromptOnce) {
    Request request{.id = 1, .prompt = {1, 2, 3}};
    request.max_tokens = 4;
    Sequence sequence(std::move(request), 0, {}, tests::gpt2_tokenizer());
    EXPECT_TRUE(sequence.request().prompt.empty());
    EXPECT_EQ(sequence.tokens, (std::vector<TokenId>{1, 2, 3}));
    EXPECT_EQ(sequence.prompt_tokens(), 3);
    sequence.accept({.token = 7, .logprob = 0.0F});
    EXPECT_EQ(sequence.prompt().size(), 3U);
    EXPECT_EQ(sequence.output().size(), 1U);
    EXPECT_EQ(sequence.take_result().tokens, std::vector<TokenId>{7});
}

// What masks of drafts took was never measured, so their price was that of rows alone.
TEST(Sequence, LearnsWhatTheMasksOfItsDraftsTake) {
    const std::vector<TokenId> twice = *tests::gpt2_tokenizer().encode("abababababab", false);
    const auto drafted = [&](std::shared_ptr<const Grammar> grammar) {
        Request request{.id = 1, .prompt = twice, .drawing = shared({.grammar = std::move(grammar)})};
        request.max_tokens = 50;
        auto sequence = std::make_unique<Sequence>(std::move(request), 0, BlockHash{}, tests::gpt2_tokenizer());
        for (const TokenId token : twice) sequence->accept({.token = token, .logprob = 0.0F});
        sequence->draft({.count = 4, .chance_least = 0.0});
        EXPECT_FALSE(sequence->drafts.empty());
        return sequence;
    };
    EXPECT_EQ(drafted(nullptr)->guess_seconds, 0.0);
    const auto vocabulary = static_cast<std::int64_t>(tests::gpt2_tokenizer().vocabulary_size());
    const auto held = drafted(tests::grammar_of("[ab]{5,60}", vocabulary));
    const double seconds = held->guess_seconds;
    EXPECT_GT(seconds, 0.0);
    held->draft({.count = 4, .chance_least = 2.0});
    EXPECT_TRUE(held->drafts.empty());
    EXPECT_LT(held->guess_seconds, seconds) << "another try comes, as it may have taken long by chance";
}

// A token that a queued step draws is to be computed next, unless it reaches max_tokens.
TEST(Sequence, IsSeenAsIfQueuedStepsHadBeenRead) {
    Request request{.id = 1, .prompt = {1, 2, 3}};
    request.max_tokens = 2;
    Sequence sequence(std::move(request), 0, {}, tests::gpt2_tokenizer());
    const auto seen = [&] { return std::pair(sequence.view().computed, sequence.view().known); };
    sequence.queued = {.rows = 3, .draws = 1, .draw_row = 0};
    EXPECT_EQ(seen(), std::pair(std::int64_t{3}, std::int64_t{4}));
    sequence.computed = 3;
    EXPECT_FALSE(sequence.accept({.token = 7, .logprob = 0.0F}));
    sequence.queued = {.rows = 1, .draws = 1, .draw_row = 0};
    EXPECT_EQ(seen(), std::pair(std::int64_t{4}, std::int64_t{4}));
    EXPECT_TRUE(sequence.accept({.token = 8, .logprob = 0.0F}));
}

TEST(Sequence, TellsWhereEachTokenBeginsInCharacters) {
    const Drawn drawn(" größer 😀👍🏽 naïve 中文 end", {}, false);
    EXPECT_EQ(drawn.result.text, " größer 😀👍🏽 naïve 中文 end");
    EXPECT_EQ(drawn.begins(), drawn.expected());
    EXPECT_TRUE(std::ranges::any_of(drawn.ids, [](TokenId id) { return !schema::is_valid_utf8(tests::gpt2_tokenizer().token_bytes(id)); }))
        << "no character was split";
}

TEST(Sequence, TokensOfACutStopTextBeginWhereTheTextEnds) {
    const Drawn drawn("one two three four", {.stop = {"two three"}}, false);
    EXPECT_EQ(drawn.result.text, "one ");
    std::vector<std::int64_t> expected = drawn.expected();
    expected.resize(drawn.result.logprobs.size());
    EXPECT_GT(expected.back(), 4) << "the stop text is more than one token";
    for (std::int64_t& begin : expected) begin = std::min<std::int64_t>(begin, 4);
    EXPECT_EQ(drawn.begins(), expected);
}

// As in vLLM, where include_stop_str_in_output is for stop tokens, too; a special one has no text unless the job asks for it.
TEST(Sequence, AnEndTokensTextIsKeptOnlyIfTheJobAsksForIt) {
    const Tokenizer& tokenizer = tests::gpt2_tokenizer();
    const auto text_of = [&](const std::string& text, schema::Sampling sampling) {
        const std::vector<TokenId> ids = *tokenizer.encode(text, false);
        Request request{.id = 1, .prompt = {1, 2, 3}};
        request.drawing = shared({.sampling = std::move(sampling), .logit_bias = {}, .end_tokens = {ids.back()}});
        request.max_tokens = 100;
        Sequence sequence(std::move(request), 0, {}, tokenizer);
        for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(sequence.accept({.token = ids[i], .logprob = 0.0F}), i + 1 == ids.size());
        const Result result = sequence.take_result();
        EXPECT_EQ(result.finish, FinishReason::stop);
        return result.text;
    };
    EXPECT_EQ(text_of("one.", {}), "one");
    EXPECT_EQ(text_of("one.", {.include_stop_text = true}), "one.");
    EXPECT_EQ(text_of("one<|endoftext|>", {.include_stop_text = true}), "one");
    EXPECT_EQ(text_of("one<|endoftext|>", {.include_stop_text = true, .skip_special_tokens = false}), "one<|endoftext|>");
    EXPECT_EQ(text_of("one.", {.stop = {"e."}, .include_stop_text = true}), "one.");
}

// The log-probabilities of a delta belong to its text, and those of all deltas together equal the result's.
TEST(Sequence, StreamsLogProbabilitiesWithTheTextTheyBelongTo) {
    for (const char* text : {" größer 😀👍🏽 naïve 中文 end", "one two three four", "one two th"}) {
        const Drawn drawn(text, {.stop = {"two three"}}, true);
        std::vector<std::int64_t> begins;
        std::int64_t characters = 0;
        for (std::size_t i = 0; i < drawn.deltas.size(); ++i) {
            const Delta& delta = drawn.deltas[i];
            characters += schema::count_characters(delta.text);
            for (const TokenLogprobs& entry : delta.logprobs) {
                begins.push_back(entry.text_begin);
                EXPECT_TRUE(entry.text_begin < characters || i + 1 == drawn.deltas.size()) << text << ", delta " << i;
            }
        }
        EXPECT_EQ(begins, drawn.begins()) << text;
    }
}

}  // namespace
}  // namespace lorry::engine
