// Text that an answer must have, with tokenizers converted from SentencePiece: its tokens are those into which the tokenizer divides the
// whole answer. Small ones of tests/data, and published ones that ops/setup --tests downloads.
#include <algorithm>
#include <array>
#include <filesystem>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/files.h"
#include "engine/text/grammar.h"
#include "engine/text/tokenizer.h"
#include "tests/support/labels.h"
#include "tests/support/temp_folder.h"

namespace lorry::engine {
namespace {

using schema::Json;
using Kind = schema::Structure::Kind;

// How a space is written before a text and within it. Published tokenizers have any of these.
enum class Spaces { as_published, put_by_normalizer, put_by_pre_tokenizer, split_words, never_put };

struct Divided {
    const char* name;
    const char* folder;
    Spaces spaces = Spaces::as_published;
};

std::ostream& operator<<(std::ostream& out, const Divided& divided) { return out << divided.name; }

constexpr std::array small_ones = {
    Divided{"llama2", "tests/data/text/llama2"},
    Divided{"llama2_in_words", "tests/data/text/llama2", Spaces::split_words},
    Divided{"gemma", "tests/data/text/llama2", Spaces::never_put},
    Divided{"mistral", "tests/data/text/mistral"},
    Divided{"mistral_by_normalizer", "tests/data/text/mistral", Spaces::put_by_normalizer},
};

constexpr std::array published_ones = {
    Divided{"llama2", ".deps/tokenizers/llama2"},
    Divided{"llama2_as_mistral", ".deps/tokenizers/llama2", Spaces::put_by_pre_tokenizer},
    Divided{"gemma3", ".deps/tokenizers/gemma3"},
};

Json parsed(const char* text) { return Json::parse(text).value(); }

void write_with(const std::filesystem::path& from, Spaces spaces, const std::filesystem::path& to) {
    Json file = Json::parse(read_text(from).value()).value();
    const Json replace = parsed(R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})");
    Json normalizer = nullptr;
    Json pre_tokenizer = nullptr;
    switch (spaces) {
        case Spaces::as_published: return;
        case Spaces::put_by_normalizer: {
            const Json prepend = parsed(R"({"type":"Prepend","prepend":"▁"})");
            normalizer = Json::object({{"type", "Sequence"}, {"normalizers", Json::Array{prepend, replace}}});
            break;
        }
        case Spaces::put_by_pre_tokenizer:
            pre_tokenizer = parsed(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":false})");
            break;
        case Spaces::split_words:
            pre_tokenizer = parsed(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})");
            break;
        case Spaces::never_put:
            normalizer = replace;
            pre_tokenizer = parsed(R"({"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":false})");
            break;
    }
    // As Phi-3's: not special, and takes the spaces after it.
    Json::Array added = *file.find("added_tokens")->as_array();
    added.push_back(
        parsed(R"({"id":60000,"content":"<br>","single_word":false,"lstrip":false,"rstrip":true,"normalized":false,"special":false})"));
    file.set("added_tokens", std::move(added));
    file.set("normalizer", normalizer);
    file.set("pre_tokenizer", pre_tokenizer);
    tests::write_text(to, file.dump());
}

bool is_inner(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

class ForcedText : public testing::TestWithParam<Divided> {
protected:
    void SetUp() override {
        const std::filesystem::path folder = std::filesystem::path(LORRY_SOURCE_DIR) / GetParam().folder;
        if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there; ops/setup --tests downloads it";
        if (GetParam().spaces == Spaces::as_published) {
            tokenizer_.emplace(Tokenizer::load(folder));
        } else {
            write_with(folder / "tokenizer.json", GetParam().spaces, scratch_.path() / "tokenizer.json");
            tokenizer_.emplace(Tokenizer::load(scratch_.path()));
        }
        end_ = *tokenizer_->find(GetParam().name == std::string_view("gemma3") ? "<eos>" : "</s>");
        compiler_.emplace(*tokenizer_, static_cast<std::int64_t>(tokenizer_->vocabulary_size()), std::vector<TokenId>{end_});
    }

    void expect_texts_as_divided();
    void expect_exact_spelling();
    void expect_what_surrounds_it_in_an_answer();
    void expect_as_in_whole_answers(int rounds);
    void expect_the_beginning_of_each_alternative(int pairs);

    std::shared_ptr<const Grammar> compile(Kind kind, const std::string& text) const {
        return compiler_->compile({.kind = kind, .text = text}).value();
    }

    // The tokens of a text after others: no merge reaches over the byte before it, which no vocabulary has as a character.
    std::vector<TokenId> divided(const std::string& text) const {
        const std::string mark = "\x01";
        const std::vector<TokenId> before = tokenizer_->encode(mark, false).value();
        const std::vector<TokenId> all = tokenizer_->encode(mark + text, false).value();
        EXPECT_TRUE(std::ranges::equal(before, std::span(all).first(before.size())));
        return {all.begin() + static_cast<std::ptrdiff_t>(before.size()), all.end()};
    }

    std::string spelled(std::span<const TokenId> tokens) const {
        std::string text;
        for (const TokenId token : tokens) text += tokenizer_->token_bytes(token);
        return text;
    }

    // Where tokens of a text begin and end, in bytes.
    std::set<std::size_t> bounds_of(std::span<const TokenId> tokens) const {
        std::set<std::size_t> bounds{0};
        for (const TokenId token : tokens) bounds.insert(*bounds.rbegin() + tokenizer_->token_bytes(token).size());
        return bounds;
    }

    const tests::TempFolder scratch_;
    std::optional<Tokenizer> tokenizer_;
    std::optional<GrammarCompiler> compiler_;
    TokenId end_ = 0;
};

constexpr std::array texts = {
    "an answer, that's already known: 2,024 tokens",
    R"({"name": "Zoë", "naïve": true, "größe":[1,2.5,-3]})",
    " one space before, two  between,   three, and one after ",
    "  two before",
    "lines\nand\n\nmore\n\n\n\n of\r\nthem\t\ttabs",
    "日本語 and 🚚🚚, e\u0301 and é, \u00a0, ﬁ, İ, 👩‍👩‍👧",
    "</ a href=\"x\">.,;:!?.. ... --- ____ ######## ((([[[{{{",
    "camelCaseWordsAndSNAKE_CASE_ones_in_2024-02-29T23:59:59Z",
    "x",
    " ",
};

void ForcedText::expect_texts_as_divided() {
    for (const std::string text : texts) {
        const auto forced = compile(Kind::choices, Json(Json::Array{text}).dump())->begin().force().value();
        EXPECT_EQ(forced.tokens, divided(text)) << text;
        EXPECT_TRUE(forced.complete) << text;
    }
}

// A tokenizer reads the mark for a space as a space, and special tokens where their texts are: neither may be.
void ForcedText::expect_exact_spelling() {
    const std::string end = tokenizer_->token_spelling(end_);
    for (const std::string& text :
         {std::string("a▁b"), std::string("▁"), std::string("a<br>  b"), "before" + end + "after", end, " " + end + " "}) {
        const auto forced = compile(Kind::choices, Json(Json::Array{text}).dump())->begin().force().value();
        EXPECT_EQ(spelled(forced.tokens), text);
        EXPECT_EQ(tokenizer_->decode(forced.tokens, true), tokenizer_->decode(forced.tokens, false)) << "a special token in " << text;
        EXPECT_TRUE(forced.complete) << text;
    }
}

constexpr const char* order =
    R"({"type":"object","properties":{"order_number":{"type":"string","pattern":"^NO-[0-9]{6}$"},)"
    R"("customer name":{"type":"string","maxLength":24},"größe":{"type":"integer","minimum":0,"maximum":99},)"
    R"("method":{"enum":["card","cash on delivery","transfer"]},"paid":{"type":"boolean"},)"
    R"("tags":{"type":"array","items":{"enum":["new","neu ","日本","🚚"]},"maxItems":3},"note":{"const":" as\nis "}},)"
    R"("required":["order_number","customer name","größe","method","paid","tags","note"],"additionalProperties":false})";

constexpr std::array orders = {
    R"({"order_number":"NO-123456","customer name":"Zoë Example","größe":42,"method":"cash on delivery","paid":true,)"
    R"("tags":["new","neu "],"note":" as\nis "})",
    R"({"order_number": "NO-000000", "customer name": "", "größe": 7, "method": "card", "paid": false, "tags": [], "note": " as\nis "})",
    R"({"order_number":"NO-999999", "customer name":"  日本 🚚\" x", "größe":0, "method": "transfer","paid":false,)"
    R"( "tags":["日本","🚚", "new"],"note":" as\nis "})",
};

// An answer of which the model draws the tokens of its text. Whatever is forced must then be the next of them.
void ForcedText::expect_what_surrounds_it_in_an_answer() {
    const auto grammar = compile(Kind::json_schema, order);
    for (const std::string text : orders) {
        const std::vector<TokenId> whole = divided(text);
        std::vector<TokenId> tokens;
        std::size_t forced_count = 0;
        Grammar::Answer answer = grammar->begin();
        bool complete = false;
        while (!complete) {
            const auto forced = answer.force().value();
            tokens.insert(tokens.end(), forced.tokens.begin(), forced.tokens.end());
            forced_count += forced.tokens.size();
            ASSERT_TRUE(tokens.size() <= whole.size() && std::equal(tokens.begin(), tokens.end(), whole.begin()))
                << text << "\nforced: " << spelled(forced.tokens) << "\nso far: " << spelled(tokens);
            complete = forced.complete;
            if (complete) break;
            ASSERT_LT(tokens.size(), whole.size());
            const TokenId next = whole[tokens.size()];
            ASSERT_TRUE((answer.allowed().value()[static_cast<std::size_t>(next) / 32] >> (next % 32) & 1U) != 0)
                << spelled(std::array{next}) << " after " << spelled(tokens);
            tokens.push_back(next);
            complete = answer.accept(next).value();
        }
        EXPECT_EQ(tokens, whole);
        EXPECT_GT(forced_count * 3, whole.size()) << "of " << text;
    }
}

// An answer of any tokens, which the tokenizer would often not choose.
void ForcedText::expect_as_in_whole_answers(int rounds) {
    const auto grammar = compile(Kind::json_schema, order);
    constexpr std::uint64_t seed = 41;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::size_t compared = 0;
    std::size_t pieces = 0;
    for (int round = 0; round < rounds; ++round) {
        struct Piece {
            std::size_t begin;
            std::vector<TokenId> tokens;
        };
        std::vector<Piece> forced_pieces;
        std::string text;
        Grammar::Answer answer = grammar->begin();
        bool complete = false;
        while (!complete) {
            const auto forced = answer.force().value();
            if (!forced.tokens.empty()) forced_pieces.push_back({text.size(), forced.tokens});
            text += spelled(forced.tokens);
            complete = forced.complete;
            if (complete) break;
            const auto allowed = answer.allowed().value();
            std::vector<TokenId> tokens;
            for (std::size_t id = 0; id < tokenizer_->vocabulary_size(); ++id)
                if ((allowed[id / 32] >> (id % 32) & 1U) != 0) tokens.push_back(static_cast<TokenId>(id));
            const TokenId drawn = tokens[random() % tokens.size()];
            text += tokenizer_->token_bytes(drawn);
            complete = answer.accept(drawn).value();
        }
        ASSERT_TRUE(Json::parse(text)) << text;
        const std::vector<TokenId> whole = divided(text);
        if (spelled(whole) != text) continue;
        const std::set<std::size_t> bounds = bounds_of(whole);
        for (const Piece& piece : forced_pieces) {
            ++pieces;
            if (!bounds.contains(piece.begin)) continue;
            ++compared;
            const auto index = static_cast<std::size_t>(std::distance(bounds.begin(), bounds.find(piece.begin)));
            const auto there = std::span(whole).subspan(index, std::min(piece.tokens.size(), whole.size() - index));
            EXPECT_TRUE(std::ranges::equal(piece.tokens, there)) << spelled(piece.tokens) << " in " << text;
        }
    }
    EXPECT_GT(compared * 2, pieces);
}

// What two answers begin with, which are cut from a text: it may end within a word, and in each answer another token may begin there.
void ForcedText::expect_the_beginning_of_each_alternative(int pairs) {
    const std::string readme = read_text(std::filesystem::path(LORRY_SOURCE_DIR) / "README.md").value();
    constexpr std::uint64_t seed = 7;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto drawn = [&](std::size_t most) { return static_cast<std::size_t>(random() % most); };
    const auto cut = [&](std::size_t begin, std::size_t size) {
        while (begin > 0 && is_inner(readme[begin])) --begin;
        while (begin + size < readme.size() && is_inner(readme[begin + size])) ++size;
        return readme.substr(begin, size);
    };
    std::size_t forced_count = 0;
    for (int pair = 0; pair < pairs; ++pair) {
        const std::string both = cut(drawn(readme.size() - 100), 1 + drawn(20));
        const std::array answers{both + cut(drawn(readme.size() - 100), 10), both + cut(readme.find(both) + both.size(), 10)};
        const auto forced = compile(Kind::choices, Json(Json::Array{answers[0], answers[1]}).dump())->begin().force().value();
        forced_count += forced.tokens.size();
        for (const std::string& answer : answers) {
            const std::vector<TokenId> whole = divided(answer);
            EXPECT_THAT(std::span(whole).first(std::min(forced.tokens.size(), whole.size())), testing::ElementsAreArray(forced.tokens))
                << spelled(forced.tokens) << " of " << answer;
        }
    }
    EXPECT_GT(forced_count, static_cast<std::size_t>(pairs) * 2);
}

const auto name_of = [](const auto& divided) { return std::string(divided.param.name); };

INSTANTIATE_TEST_SUITE_P(Small, ForcedText, testing::ValuesIn(small_ones), name_of);
TEST_P(ForcedText, IsDividedAsTheTokenizerDividesIt) { expect_texts_as_divided(); }
TEST_P(ForcedText, IsSpelledExactlyWhereTheTokenizerWouldReadAnother) { expect_exact_spelling(); }
TEST_P(ForcedText, IsWhatTheTokenizerMakesOfTheAnswerAroundIt) { expect_what_surrounds_it_in_an_answer(); }
TEST_P(ForcedText, IsDividedAsInTheWholeAnswerWhereverThatIsDividedAtItsBegin) { expect_as_in_whole_answers(30); }
TEST_P(ForcedText, IsTheBeginningOfEachAlternative) { expect_the_beginning_of_each_alternative(100); }

// Reading a vocabulary of 262,144 tokens takes seconds, so that all is one test.
class PublishedForcedText : public ForcedText {};
const tests::Labelled published_vocabularies{"Published/PublishedForcedText.*", {tests::Label::not_asan, tests::Label::not_tsan}};
INSTANTIATE_TEST_SUITE_P(Published, PublishedForcedText, testing::ValuesIn(published_ones), name_of);
TEST_P(PublishedForcedText, IsDividedAsTheTokenizerDividesTheWhole) {
    expect_texts_as_divided();
    expect_exact_spelling();
    expect_what_surrounds_it_in_an_answer();
    expect_as_in_whole_answers(4);
    expect_the_beginning_of_each_alternative(60);
}

}  // namespace
}  // namespace lorry::engine
