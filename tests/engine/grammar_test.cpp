// Answers that grammars hold: they match, end where nothing may follow, and take the tokens that are forced without drawing them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <future>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/engine.h"
#include "engine/text/grammar.h"
#include "schema/json.h"
#include "tests/support/hash_engine.h"
#include "tests/support/test_grammar.h"

namespace lorry::engine {
namespace {

using tests::grammar_end;
using tests::grammar_of;
using tests::hash_tokens;
using tests::prompt_of;
using tests::request_of;

// Parameter: how many steps may be queued.
class GrammarTest : public testing::TestWithParam<std::int64_t> {};

std::shared_ptr<const Grammar> grammar_of_schema(const std::string& schema, const Tokenizer& tokenizer = tests::gpt2_tokenizer()) {
    GrammarCompiler compiler(tokenizer, tests::hash_vocabulary, {grammar_end});
    return *compiler.compile({.text = schema, .space = ""});
}

TEST_P(GrammarTest, HoldsEachAnswerToItsOwnGrammarAmongOthersWithNone) {
    tests::HashEngine rig(GetParam(), 200, 200, {.step_rows_max = 32});
    // Of printable characters: a prompt that ends within a character would have it completed by the answer's text.
    const auto ascii_prompt = [](RequestId id) {
        std::vector<TokenId> prompt = prompt_of(4 + static_cast<std::int64_t>(id), static_cast<std::int32_t>(id));
        for (TokenId& token : prompt) token %= grammar_end;
        return prompt;
    };
    const std::vector<std::string> regexes{"[a-c]{2,5}", "(yes|no)", "[0-9]{4}-[0-9]{2}", "(ab){1,40}", "x?y?z?w"};
    for (RequestId id = 1; id <= 20; ++id) {
        Request request = request_of(id, ascii_prompt(id), 30);
        if (id % 4 != 0) {
            request.drawing = shared({.end_tokens = {grammar_end}, .grammar = grammar_of(regexes[id % regexes.size()])});
        }
        rig.engine->submit(std::move(request));
    }
    for (const auto& [id, result] : rig.run()) {
        ASSERT_FALSE(result.error) << id;
        if (id % 4 == 0) {
            EXPECT_EQ(result.tokens, hash_tokens(ascii_prompt(id), 30)) << id;
        } else if (result.finish == FinishReason::stop) {
            EXPECT_THAT(result.text, testing::MatchesRegex(regexes[id % regexes.size()])) << id;
        } else {
            EXPECT_EQ(result.tokens.size(), 30U) << id;
        }
    }
}

// It ends without an end token, before min_tokens, and though the request ignores end tokens.
TEST_P(GrammarTest, EndsAnAnswerWhereItsGrammarLetsNothingFollow) {
    tests::HashEngine rig(GetParam(), 50, 200, {});
    Request request = request_of(1, prompt_of(5, 2), 40);
    request.drawing = shared({.sampling = {.min_tokens = 30}, .end_tokens = {grammar_end}, .grammar = grammar_of("abc?|x{3}")});
    rig.engine->submit(request);
    request.id = 2;
    request.drawing = shared({.grammar = grammar_of("\\d{3}")});
    rig.engine->submit(request);
    const auto results = rig.run();
    for (const auto& [id, result] : results) {
        EXPECT_EQ(result.finish, FinishReason::stop);
        EXPECT_EQ(std::ranges::count(result.tokens, grammar_end), 0) << id;
    }
    EXPECT_THAT(results.at(1).text, testing::AnyOf("ab", "abc", "xxx"));
    EXPECT_THAT(results.at(2).text, testing::MatchesRegex("[0-9]{3}"));
}

// As in ECMA-262, whose patterns JSON Schema has. The vocabulary has tokens for the bytes of other digits.
TEST_P(GrammarTest, ReadsDigitsInPatternsAsThoseOfAscii) {
    tests::HashEngine rig(GetParam(), 200, 200, {});
    const auto grammar =
        grammar_of_schema(R"({"type":"object","properties":{"default":{"type":"string","pattern":"^[\\d]\\d{4}$"}},"required":["default"],)"
                          R"("additionalProperties":false})");
    for (RequestId id = 1; id <= 30; ++id) {
        Request request = request_of(id, prompt_of(5, static_cast<std::int32_t>(id)), 60);
        for (TokenId& token : request.prompt) token %= grammar_end;
        request.drawing = shared({.end_tokens = {grammar_end}, .grammar = grammar});
        rig.engine->submit(std::move(request));
    }
    for (const auto& [id, result] : rig.run()) EXPECT_THAT(result.text, testing::MatchesRegex("[{]\"default\":\"[0-9]{5}\"[}]"));
}

// The library lets quotes and backslashes through where a class of JSON's text has all control characters.
TEST_P(GrammarTest, LetsNoQuoteThroughAClassThatExcludesIt) {
    tests::HashEngine rig(GetParam(), 200, 200, {});
    const auto grammar =
        grammar_of_schema(R"({"type":"array","items":{"type":"string","pattern":"^[^\"\\\\]{3}$"},"minItems":4,"maxItems":4})");
    for (RequestId id = 1; id <= 40; ++id) {
        Request request = request_of(id, prompt_of(5, static_cast<std::int32_t>(id)), 80);
        for (TokenId& token : request.prompt) token %= grammar_end;
        request.drawing = shared({.end_tokens = {grammar_end}, .grammar = grammar});
        rig.engine->submit(std::move(request));
    }
    for (const auto& [id, result] : rig.run()) {
        if (result.finish != FinishReason::stop) continue;
        const auto answer = schema::Json::parse(result.text);
        ASSERT_TRUE(answer) << result.text;
        for (const schema::Json& text : *answer->as_array())
            EXPECT_EQ(text.as_string()->find_first_of("\"\\"), std::string::npos) << result.text;
    }
}

// After "ab" the grammar allows "é", too, for which the vocabulary has no token: the end token is drawn, although min_tokens bans it.
TEST_P(GrammarTest, DrawsAnEndTokenBeforeMinTokensWhereItsGrammarAllowsNoOther) {
    tests::HashEngine rig(GetParam(), 50, 200, {});
    Request request = request_of(1, prompt_of(5, 2), 40);
    request.drawing = shared({.sampling = {.min_tokens = 30}, .end_tokens = {grammar_end}, .grammar = grammar_of("abé?", grammar_end + 1)});
    rig.engine->submit(request);
    EXPECT_EQ(rig.run().at(1).text, "ab");
}

// Answers under the structure, of 30 prompts of printable characters.
std::vector<Result> results_under(const schema::Structure& structure, std::int64_t queued) {
    GrammarCompiler compiler(tests::gpt2_tokenizer(), tests::hash_vocabulary, {grammar_end});
    const auto grammar = *compiler.compile(structure);
    tests::HashEngine rig(queued, 200, 200, {});
    for (RequestId id = 1; id <= 30; ++id) {
        Request request = request_of(id, prompt_of(5, static_cast<std::int32_t>(id)), 300);
        for (TokenId& token : request.prompt) token %= grammar_end;
        request.drawing = shared({.end_tokens = {grammar_end}, .grammar = grammar});
        rig.engine->submit(std::move(request));
    }
    std::vector<Result> results;
    for (auto& [id, result] : rig.run()) results.push_back(std::move(result));
    return results;
}

// What vLLM's whitespace_pattern and disable_additional_properties say.
TEST_P(GrammarTest, WritesJsonInTheStyleThatAJobAsksFor) {
    const std::string schema =
        R"({"type":"object","properties":{"a":{"enum":[1]},"b":{"type":"object","properties":{"c":{"enum":[2]}},"required":["c"]}},)"
        R"("required":["a","b"]})";
    bool spaced = false;
    for (const Result& result : results_under({.text = schema, .space = "( |\\s\\n){0,2}", .closed = true}, GetParam())) {
        ASSERT_EQ(result.finish, FinishReason::stop) << result.text;
        const auto answer = schema::Json::parse(result.text);
        ASSERT_TRUE(answer) << result.text;
        EXPECT_EQ(answer->dump(), R"({"a":1,"b":{"c":2}})");
        spaced |= result.text.find_first_of(" \n") != std::string::npos;
    }
    EXPECT_TRUE(spaced);
    for (const Result& result : results_under({.text = schema, .space = "", .closed = true}, GetParam()))
        EXPECT_EQ(result.text, R"({"a":1,"b":{"c":2}})");
}

TEST_P(GrammarTest, HoldsTagsToTheirSchemasInFreeText) {
    const std::string tags =
        R"({"structures":[{"begin":"a[","schema":{"enum":[17]},"end":"]"},{"begin":"e","schema":{"enum":["x"]},"end":""}],)"
        R"("triggers":["a","e"]})";
    const std::array<std::string_view, 2> whole{"a[17]", R"(e"x")"};
    std::map<std::string_view, int> found;
    for (const Result& result : results_under({.kind = schema::Structure::Kind::tags, .text = tags}, GetParam())) {
        std::string_view rest = result.text;
        while (!rest.empty()) {
            rest.remove_prefix(std::min(rest.find_first_of("ae"), rest.size()));
            const auto* const tag = std::ranges::find_if(whole, [&](std::string_view each) { return rest.starts_with(each); });
            if (tag == whole.end()) {
                const bool is_cut = std::ranges::any_of(whole, [&](std::string_view each) { return each.starts_with(rest); });
                EXPECT_TRUE(is_cut && (rest.empty() || result.finish == FinishReason::length)) << result.text;
                break;
            }
            ++found[*tag];
            rest.remove_prefix(tag->size());
        }
    }
    EXPECT_EQ(found.size(), whole.size());
}

TEST_P(GrammarTest, HoldsAnswersToAFormatOfTags) {
    const std::string format =
        R"({"format":{"type":"sequence","elements":[{"type":"tag","begin":"a[","content":{"type":"any_text"},"end":["]","e"]},)"
        R"({"type":"tags_with_separator","separator":",","tags":[{"type":"tag","begin":"x","content":{"type":"json_schema",)"
        R"("json_schema":{"enum":[17,true]}},"end":";"}]}]}})";
    int finished = 0;
    for (const Result& result : results_under({.kind = schema::Structure::Kind::tags, .text = format}, GetParam())) {
        EXPECT_FALSE(result.error);
        EXPECT_THAT(result.text, testing::StartsWith("a["));
        if (result.finish != FinishReason::stop) continue;
        const std::string after_text = result.text.substr(std::min(result.text.find_first_of("]e", 2), result.text.size()));
        EXPECT_THAT(after_text, testing::MatchesRegex("[]e](x(17|true);(,x(17|true);)*)?")) << result.text;
        ++finished;
    }
    EXPECT_GT(finished, 10);
}

schema::Structure regex_of(std::string text) { return {.kind = schema::Structure::Kind::regex, .text = std::move(text)}; }

// An answer whose names and signs are forced, with room for drawn tokens between them.
std::shared_ptr<const Grammar> grammar_of_fields(const Tokenizer& tokenizer) {
    return grammar_of_schema(
        R"({"type":"object","properties":{"first":{"type":"string","pattern":"^[a-c]{2}$"},"second":{"enum":["x","y"]}},)"
        R"("required":["first","second"],"additionalProperties":false})",
        tokenizer);
}

std::vector<Request> requests_with_fields(const schema::Sampling& sampling, const Tokenizer& tokenizer = tests::gpt2_tokenizer()) {
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 8; ++id) {
        Request request = request_of(id, prompt_of(5, static_cast<std::int32_t>(id)), 60);
        for (TokenId& token : request.prompt) token %= grammar_end;
        request.drawing = shared({.sampling = sampling, .end_tokens = {grammar_end}, .grammar = grammar_of_fields(tokenizer)});
        requests.push_back(std::move(request));
    }
    return requests;
}

void expect_as_one_by_one(std::int64_t steps_queued, const Tokenizer& tokenizer) {
    for (const schema::Sampling& sampling :
         {schema::Sampling{}, {.frequency_penalty = 1.5}, {.min_tokens = 50}, {.logprobs = 2}, {.stop = {"second"}}, {.stop = {"\":\""}}}) {
        tests::HashEngine together(steps_queued, 200, 200, {}, tokenizer);
        tests::HashEngine one_by_one(steps_queued, 200, 200, {.force_together = false}, tokenizer);
        for (const Request& request : requests_with_fields(sampling, tokenizer)) {
            together.engine->submit(request);
            one_by_one.engine->submit(request);
        }
        const auto results = together.run();
        const auto expected = one_by_one.run();
        for (const auto& [id, result] : results) {
            EXPECT_EQ(result.tokens, expected.at(id).tokens);
            EXPECT_EQ(result.text, expected.at(id).text);
            EXPECT_EQ(result.finish, expected.at(id).finish);
            EXPECT_EQ(result.logprobs.size(), sampling.logprobs ? result.tokens.size() : 0U);
            if (sampling.stop.empty()) {
                EXPECT_THAT(result.text, testing::MatchesRegex("[{]\"first\":\"[a-c]{2}\",\"second\":\"[xy]\"[}]"));
            }
        }
        const EngineStats& stats = together.engine->stats();
        EXPECT_EQ(one_by_one.engine->stats().forced_tokens, 0U);
        EXPECT_EQ(stats.forced_tokens + stats.drawn_tokens, one_by_one.engine->stats().drawn_tokens);
        if (sampling.stop.empty() && !sampling.logprobs) {
            EXPECT_LE(stats.drawn_tokens, 8U * 3U) << "at most two tokens for the letters, and one for the choice";
        }
    }
}

TEST_P(GrammarTest, ComputesForcedTokensTogetherAndAnswersAsOneByOne) { expect_as_one_by_one(GetParam(), tests::gpt2_tokenizer()); }

TEST_P(GrammarTest, ComputesForcedTokensTogetherWithTokenizersOfSentencePiece) {
    for (const char* name : {"llama2", "mistral"})
        expect_as_one_by_one(GetParam(), Tokenizer::load(std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data/text" / name));
}

// After a prompt of special tokens only, the answer's first token was decoded as a text's, whose space is not part of it.
TEST_P(GrammarTest, KeepsTheSpaceWithWhichAnAnswerBegins) {
    const Tokenizer tokenizer = Tokenizer::load(std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data/text/llama2");
    GrammarCompiler compiler(tokenizer, tests::hash_vocabulary, {grammar_end});
    tests::HashEngine rig(GetParam(), 50, 200, {}, tokenizer);
    Request request = request_of(1, {tokenizer.find("<s>").value()}, 20);
    request.drawing = shared({.end_tokens = {grammar_end}, .grammar = *compiler.compile(regex_of(" (yes|no) "))});
    rig.engine->submit(request);
    EXPECT_THAT(rig.run().at(1).text, testing::MatchesRegex(" (yes|no) "));
}

TEST_P(GrammarTest, AnswersAsEverWhereMasksAreLate) {
    tests::HashEngine patient(GetParam(), 200, 200, {});
    tests::HashEngine hasty(GetParam(), 200, 200, {.mask_patience = MaskPatience{.step_share = 0.5, .seconds_least = 0.0}});
    for (const Request& request : requests_with_fields({.logprobs = 2})) {
        patient.engine->submit(request);
        hasty.engine->submit(request);
    }
    const auto expected = patient.run();
    for (const auto& [id, result] : hasty.run()) {
        EXPECT_EQ(result.tokens, expected.at(id).tokens);
        EXPECT_EQ(result.finish, expected.at(id).finish);
    }
    EXPECT_EQ(patient.engine->stats().held_back, 0U);
    EXPECT_GT(hasty.engine->stats().held_back, 0U);
    EXPECT_EQ(hasty.engine->stats().drawn_tokens, patient.engine->stats().drawn_tokens);
}

// Scored rows, forced ones that need no logits, and the one that is drawn from lie in a row: the first two fill the step's rows of logits.
TEST_P(GrammarTest, ForcesTokensAfterPromptsThatAreScored) {
    tests::HashEngine rig(GetParam(), 400, 200, {.step_rows_max = 128});
    std::map<RequestId, std::vector<TokenId>> prompts;
    for (Request request : requests_with_fields({})) {
        request.prompt = prompt_of(60 + static_cast<std::int64_t>(request.id), 1 + static_cast<std::int32_t>(request.id));
        request.prompt.back() %= grammar_end;
        request.score_begin = 0;
        prompts[request.id] = request.prompt;
        rig.engine->submit(std::move(request));
    }
    for (const auto& [id, result] : rig.run()) {
        EXPECT_EQ(result.scores.size(), prompts.at(id).size() - 1);
        EXPECT_THAT(result.text, testing::MatchesRegex("[{]\"first\":\"[a-c]{2}\",\"second\":\"[xy]\"[}]"));
    }
}

TEST_P(GrammarTest, CutsForcedTokensAtMaxTokens) {
    tests::HashEngine whole(GetParam(), 200, 200, {});
    whole.engine->submit(requests_with_fields({}).front());
    const Result answer = whole.run().at(1);
    ASSERT_EQ(answer.finish, FinishReason::stop);
    for (std::size_t most = 1; most < answer.tokens.size(); ++most) {
        tests::HashEngine rig(GetParam(), 200, 200, {});
        Request request = requests_with_fields({}).front();
        request.max_tokens = static_cast<std::int64_t>(most);
        rig.engine->submit(request);
        const Result result = rig.run().at(1);
        EXPECT_THAT(result.tokens, testing::ElementsAreArray(std::span(answer.tokens).first(most)));
        EXPECT_EQ(result.finish, FinishReason::length);
    }
}

TEST_P(GrammarTest, ComputesNothingForAnAnswerThatIsForcedAsAWhole) {
    tests::HashEngine rig(GetParam(), 50, 200, {});
    Request request = request_of(1, prompt_of(5, 2), 40);
    request.stream = true;
    request.drawing = shared({.end_tokens = {grammar_end}, .grammar = grammar_of("yes")});
    rig.engine->submit(request);
    request.id = 2;
    request.score_begin = 0;
    rig.engine->submit(request);
    const auto results = rig.run();
    for (const auto& [id, result] : results) {
        EXPECT_EQ(result.text, "yes");
        EXPECT_EQ(result.finish, FinishReason::stop);
        EXPECT_EQ(result.scores.size(), id == 2 ? 4U : 0U);
    }
    EXPECT_EQ(rig.engine->stats().rows, 4U) << "of the prompt that is scored";
}

TEST(Grammars, ForceTheTokensIntoWhichTheTokenizerDividesAText) {
    const Tokenizer& tokenizer = tests::gpt2_tokenizer();
    const auto vocabulary = static_cast<std::int64_t>(tokenizer.vocabulary_size());
    GrammarCompiler compiler(tokenizer, vocabulary, {static_cast<TokenId>(vocabulary - 1)});
    for (const std::string text :
         {"an answer, that's already known: 2,024 tokens", "{\"name\": \"Zoë\", \"naïve\": true}", "日本語 and 🚚🚚"}) {
        const auto grammar =
            *compiler.compile({.kind = schema::Structure::Kind::choices, .text = schema::Json(schema::Json::Array{text}).dump()});
        const auto forced = *grammar->begin().force();
        EXPECT_EQ(forced.tokens, *tokenizer.encode(text, false));
        EXPECT_TRUE(forced.complete);
    }
}

constexpr const char* fields_of_an_order =
    R"({"type":"object","properties":{"number":{"type":"string","pattern":"^NO-[0-9]{6}$"},"name":{"type":"string","maxLength":20},)"
    R"("date":{"type":"string","format":"date"},"method":{"enum":["card","transfer","cash"]},"amount":{"type":"number","minimum":0}},)"
    R"("required":["number","name","date","method","amount"],"additionalProperties":false})";

// Each answer found all states of the lexer anew, which was most of what its masks took.
TEST(Grammars, BeginAnswersWithTheStatesThatTheyWillNeed) {
    const Tokenizer& tokenizer = tests::gpt2_tokenizer();
    const auto vocabulary = static_cast<std::int64_t>(tokenizer.vocabulary_size());
    GrammarCompiler compiler(tokenizer, vocabulary, {static_cast<TokenId>(vocabulary - 1)});
    EXPECT_GT((*compiler.compile({.text = fields_of_an_order}))->size().answer_bytes, 200'000U) << "the first ones take half as much";
    EXPECT_LT((*compiler.compile(regex_of("\"[^\"]{0,3000}\"")))->size().answer_bytes, 2'000'000U) << "but no more than some";
}

// Draws of an answer, and what was allowed before each.
std::string drawn_from(Grammar::Answer answer, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::string told;
    auto forced = *answer.force();
    while (!forced.complete) {
        for (const TokenId token : forced.tokens) told += fmt::format(" {}", token);
        std::vector<TokenId> tokens;
        const auto allowed = *answer.allowed();
        for (TokenId token = 0; token < static_cast<TokenId>(allowed.size() * 32); ++token) {
            if (token != grammar_end && (allowed[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1U) != 0) tokens.push_back(token);
        }
        const TokenId drawn = tokens[random() % tokens.size()];
        told += fmt::format(" {}/{}", drawn, fmt::join(tokens, ","));
        if (*answer.accept(drawn)) return told;
        forced = *answer.force();
    }
    return told;
}

// Answers begin with states that they share until they need others.
TEST(Grammars, AllowTheSameWhereAnswersBeginAtOnceOnManyThreads) {
    const auto shared_one = grammar_of_schema(fields_of_an_order);
    std::vector<std::future<std::string>> told;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
        told.push_back(std::async(std::launch::async, [&, seed] { return drawn_from(shared_one->begin(), seed); }));
    }
    const auto another = grammar_of_schema(fields_of_an_order);
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
        EXPECT_EQ(told[seed].get(), drawn_from(another->begin(), seed)) << "seed " << seed;
    }
}

// States that an answer begins with and does not need would bring it to the bound sooner.
TEST(Grammars, DoNotCountTheStatesThatAnswersBeginWith) {
    const TokenId a = tests::gpt2_tokenizer().encode("a", false)->front();
    const TokenId y = tests::gpt2_tokenizer().encode("y", false)->front();
    Grammar::Answer answer = grammar_of("x[ac]{900}|y[ab]{3950}")->begin();
    ASSERT_TRUE(answer.allowed());
    ASSERT_TRUE(answer.accept(y));
    for (int i = 0; i < 3950; ++i) {
        const auto allowed = answer.allowed();
        ASSERT_TRUE(allowed) << allowed.error() << " after " << i;
        ASSERT_EQ(*answer.accept(a), i == 3949);
    }
}

// Compiled once they took megabytes each, and 64 of them were kept, whatever they took.
TEST(Grammars, AreKeptUpToAnAmountOfMemoryAndTheOldestLeaveFirst) {
    constexpr std::size_t kept_bytes_max = 3'000'000;
    GrammarCache cache(kept_bytes_max);
    GrammarCompiler compiler(tests::gpt2_tokenizer(), tests::hash_vocabulary, {grammar_end}, &cache);
    const auto large = [](char letter) { return regex_of(std::string(4'000, letter)); };
    const std::size_t one = (*compiler.compile(large('a')))->size().bytes;
    ASSERT_GT(one, 500'000U);
    ASSERT_LT(one, kept_bytes_max);
    for (const char letter : {'b', 'c', 'd', 'e', 'f', 'g', 'h'}) compiler.compile(large(letter)).value();
    const GrammarCache::Stats stats = cache.stats();
    EXPECT_EQ(stats.compilations, 8U);
    EXPECT_GE(stats.kept_bytes, stats.kept * one / 2);
    EXPECT_LE(stats.kept_bytes, kept_bytes_max);
    compiler.compile(large('h')).value();
    EXPECT_EQ(cache.stats().compilations, 8U) << "kept";
    compiler.compile(large('a')).value();
    EXPECT_EQ(cache.stats().compilations, 9U) << "forgotten";
}

// Pins: each adapter with a tokenizer of its own kept as much as the base, some hundred of them 16 GiB.
TEST(Grammars, OfCompilersThatShareACacheAreKeptUpToOneAmountAndUntilTheirCompilerEnds) {
    GrammarCache cache;
    GrammarCompiler base(tests::gpt2_tokenizer(), tests::hash_vocabulary, {grammar_end}, &cache);
    const GrammarCompiler::Shared of_base = *base.compile(regex_of("[ab]{3}"));
    {
        GrammarCompiler adapter(tests::gpt2_tokenizer(), tests::hash_vocabulary, {grammar_end}, &cache);
        EXPECT_FALSE(adapter.find(regex_of("[ab]{3}")).valid()) << "what one compiles is for its tokenizer alone";
        EXPECT_NE(*adapter.compile(regex_of("[ab]{3}")), of_base);
        EXPECT_EQ(cache.stats().kept, 2U);
    }
    EXPECT_EQ(cache.stats().kept, 1U);
    EXPECT_EQ(*base.compile(regex_of("[ab]{3}")), of_base);
    EXPECT_EQ(cache.stats().compilations, 2U);

    GrammarCache small(cache.stats().kept_bytes * 5 / 2);
    std::vector<std::unique_ptr<GrammarCompiler>> compilers;
    for (int i = 0; i < 4; ++i) {
        compilers.push_back(
            std::make_unique<GrammarCompiler>(tests::gpt2_tokenizer(), tests::hash_vocabulary, std::vector<TokenId>{grammar_end}, &small));
        compilers.back()->compile(regex_of("[ab]{3}")).value();
    }
    EXPECT_EQ(small.stats().kept, 2U);
    EXPECT_FALSE(compilers[0]->find(regex_of("[ab]{3}")).valid());
    EXPECT_TRUE(compilers[3]->find(regex_of("[ab]{3}")).valid());
}

TEST(Grammars, ThatCannotBeCompiledFailOnceAndAreRefusedWithTheSameWordsAfterwards) {
    GrammarCache cache;
    GrammarCompiler compiler(tests::gpt2_tokenizer(), tests::hash_vocabulary, {grammar_end}, &cache);
    const auto error = compiler.compile(regex_of("(a")).error();
    for (int again = 0; again < 100; ++again) EXPECT_EQ(compiler.compile(regex_of("(a")).error(), error);
    EXPECT_EQ(cache.stats().compilations, 1U);
}

TEST(Grammars, ThatDifferInStyleAreCompiledApart) {
    GrammarCompiler compiler(tests::gpt2_tokenizer(), tests::hash_vocabulary, {grammar_end});
    const schema::Structure structure{.text = R"({"type":"object","properties":{"a":{"type":"null"}}})"};
    schema::Structure compact = structure;
    compact.space = "";
    schema::Structure closed = structure;
    closed.closed = true;
    const auto first = *compiler.compile(structure);
    EXPECT_NE(*compiler.compile(compact), first);
    EXPECT_NE(*compiler.compile(closed), first);
    EXPECT_EQ(*compiler.compile(structure), first);
}

TEST(Grammars, ThatWouldWriteWhatIsNoJsonOrNoTagAreRefused) {
    struct Case {
        schema::Structure structure;
        std::string error;
    };
    const auto repeated = [](const std::string& text, int times) {
        std::string list = text;
        for (int i = 1; i < times; ++i) list += "," + text;
        return list;
    };
    const auto spaced = [](std::string space) { return schema::Structure{.text = "{}", .space = std::move(space)}; };
    const auto tagged = [](std::string text) { return schema::Structure{.kind = schema::Structure::Kind::tags, .text = std::move(text)}; };
    const std::vector<Case> cases{
        {spaced("x"), "whitespace_pattern has 'x'"},
        {spaced("[^a]"), "whitespace_pattern has '[^'"},
        {spaced("[*]"), "whitespace_pattern has '[*'"},
        {spaced("[(]"), "whitespace_pattern has '[('"},
        {spaced(" )|( "), "whitespace_pattern has ')'"},
        {spaced("( "), "a class or a group that does not end"},
        {spaced("[ "), "a class or a group that does not end"},
        {spaced("."), "whitespace_pattern has '.'"},
        {spaced("\\S"), "whitespace_pattern has '\\S'"},
        {spaced("(?i: )"), "whitespace_pattern has '(?'"},
        {spaced(" {1,x}"), "whitespace_pattern has '{'"},
        {spaced("\\"), "whitespace_pattern has '\\'"},
        {spaced(std::string(201, ' ')), "whitespace_pattern has 201 bytes"},
        {tagged(R"({"structures":1,"triggers":["<"]})"), "structures is a list"},
        {tagged(R"({"structures":[{"begin":"<a","schema":{},"end":""}],"triggers":[]})"), "triggers is a list of at least one text"},
        {tagged(R"({"structures":[{"begin":"a","schema":{},"end":""}],"triggers":["<"]})"),
         "structures[0].begin 'a' begins with none of the triggers"},
        {tagged(R"({"structures":[{"begin":"<","schema":{}}],"triggers":["<"]})"), "structures[0].end is missing"},
        {tagged(R"({"structures":[{"begin":"<","end":""}],"triggers":["<"]})"), "structures[0].schema is missing"},
        {tagged(R"({"structures":[{"begin":"<","schema":{},"end":"","x":1}],"triggers":["<"]})"), "structures[0].x is not supported"},
        {tagged(R"({"structures":[{"begin":"<","schema":{},"end":""}],"triggers":["<","a<b"]})"), "is a part of 'a<b'"},
        {tagged(R"({"structures":[{"begin":"<","schema":{},"end":""}],"triggers":["<",">"]})"),
         "none of the structures begins with the trigger '>'"},
        {tagged(R"({"structures":[{"begin":"a","schema":{},"end":""}],"triggers":[)" + repeated(R"("a")", 201) + "]}"),
         "there are 201 triggers"},
        {tagged(R"({"structures":[{"begin":"a","schema":{},"end":""}],"triggers":[")" + std::string(20'000, 'a') + R"("]})"),
         "the triggers are too long"},
        {tagged(R"({"structures":[{"begin":"","schema":{},"end":""}],"triggers":[""]})"), "a trigger is empty"},
        {tagged(R"({"structures":[{"begin":"<|endoftext|>","schema":{},"end":""}],"triggers":["<"]})"), "has the special token"},
        {tagged(R"({"structures":[{"begin":"<","schema":7,"end":""}],"triggers":["<"]})"), "a schema is a JSON object"},
    };
    GrammarCompiler compiler(tests::gpt2_tokenizer(), tests::hash_vocabulary, {grammar_end});
    for (const auto& [structure, error] : cases) {
        const auto grammar = compiler.compile(structure);
        ASSERT_FALSE(grammar) << error;
        EXPECT_THAT(grammar.error(), testing::HasSubstr(error));
    }
}

TEST(Grammars, ThatManyThreadsAskForAtOnceAreCompiledOnceEach) {
    GrammarCache cache;
    GrammarCompiler compiler(tests::gpt2_tokenizer(), tests::hash_vocabulary, {grammar_end}, &cache);
    std::vector<std::future<GrammarCompiler::Shared>> compiled;
    for (int i = 0; i < 16; ++i) {
        compiled.push_back(
            std::async(std::launch::async, [&, i] { return *compiler.compile(regex_of("[a-c]{2}" + std::to_string(i % 4))); }));
    }
    std::vector<GrammarCompiler::Shared> grammars;
    for (auto& each : compiled) grammars.push_back(each.get());
    EXPECT_EQ(cache.stats().compilations, 4U);
    for (std::size_t i = 4; i < grammars.size(); ++i) EXPECT_EQ(grammars[i], grammars[i % 4]);
}

std::string error_of(schema::Structure::Kind kind, std::string text) {
    GrammarCompiler compiler(tests::gpt2_tokenizer(), tests::hash_vocabulary, {grammar_end});
    const auto compiled = compiler.compile({.kind = kind, .text = std::move(text)});
    return compiled ? "none" : compiled.error();
}

// Each took hundreds of megabytes, or seconds. A schema of a function was checked by itself, so that many together passed.
TEST(Grammars, ThatWouldTakeTooMuchMemoryAreRefusedBeforeOrAfterTheyAreCompiled) {
    using Kind = schema::Structure::Kind;
    const auto list_of = [](std::size_t count, const std::string& value) {
        std::string list = value;
        for (std::size_t i = 1; i < count; ++i) list += "," + value;
        return list;
    };
    EXPECT_EQ(error_of(Kind::regex, std::string(200'000, 'a')),
              "the regular expression is too long: 200000 bytes; supported are up to 131072");
    EXPECT_EQ(error_of(Kind::lark, "start: \"" + std::string(200'000, 'a') + '"'),
              "the grammar is too long: 200009 bytes; supported are up to 131072");
    EXPECT_EQ(error_of(Kind::choices, "[\"" + std::string(1'100'000, 'a') + "\"]"),
              "the choices are too long: 1100004 bytes; supported are up to 1048576");
    EXPECT_EQ(error_of(Kind::json_schema, R"({"enum": [)" + list_of(60'000, "[1]") + "]}"),
              "it is too large: it has 120001 values; supported are up to 50000");
    EXPECT_EQ(error_of(Kind::json_schema, R"({"pattern": ")" + std::string(200'000, 'a') + "\"}"),
              "it is too large: it has 200000 bytes of patterns; supported are up to 131072");
    EXPECT_THAT(error_of(Kind::json_schema, R"({"const": ")" + std::string(300'000, 'a') + "\"}"),
                testing::MatchesRegex("it is too large: compiled, it takes [0-9]+ MiB of memory; supported are up to 32"));
    const std::string schema = R"({"anyOf": [)" + list_of(900, R"({"$ref": "#"})") + "]}";
    EXPECT_EQ(error_of(Kind::rules, R"({"rules": "start: schema_0 | schema_1\n", "schemas": [)" + list_of(9, schema) + "]}"),
              "it is too large: it has 5400 references; supported are up to 5000");
}

INSTANTIATE_TEST_SUITE_P(StepsQueued, GrammarTest, testing::Values(1, 2));

}  // namespace
}  // namespace lorry::engine
