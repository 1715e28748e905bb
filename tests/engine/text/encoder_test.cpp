// Compares the encodings of encoder models with those of transformers (tests/data/text/make_encoder_vectors.py): ids, token types and spans
// of texts and pairs, truncation, windows.
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/text/tokenizer.h"
#include "tests/engine/text/encoder_vectors.h"
#include "tests/support/labels.h"

namespace lorry::engine {
namespace {

// No other thread takes part.
const tests::Labelled encodings_without_tsan{"*", {tests::Label::not_tsan}};

using namespace text_vectors;
using testing::HasSubstr;

class EncoderOfKind : public testing::TestWithParam<std::string> {
protected:
    const schema::Json vectors_ = encoder_vectors_of(GetParam());
    const Tokenizer tokenizer_ = Tokenizer::load(encoder_folder_of(GetParam()));
};

INSTANTIATE_TEST_SUITE_P(Kinds, EncoderOfKind, testing::ValuesIn(encoder_kinds), [](const auto& kind) { return kind.param; });

TEST_P(EncoderOfKind, EncodesTextsAndPairsAsTransformersDoes) {
    EXPECT_GT(compare_texts_and_pairs(tokenizer_, vectors_), 0u);
    EXPECT_TRUE(tokenizer_.takes_pairs());
    EXPECT_EQ(tokenizer_.special_tokens_added(false), list(vectors_, "added")[0].as_integer());
    EXPECT_EQ(tokenizer_.special_tokens_added(true), list(vectors_, "added")[1].as_integer());
}

TEST_P(EncoderOfKind, TruncatesAsTransformersDoes) {
    std::size_t errors = 0;
    for (const auto& entry : list(vectors_, "limited")) {
        const auto encoded = tokenizer_.encode_pair(text(entry, "first"), optional_text(entry, "second"), limit_of(entry));
        if (const auto* error = entry.find("error")) {
            ++errors;
            // Ours says how many tokens are needed.
            const bool lacks_room = error->as_string()->find("too short to respect") != std::string::npos;
            EXPECT_THAT(encoded ? "encoded" : encoded.error(), HasSubstr(lacks_room ? "leaves no room" : *error->as_string()))
                << entry.dump();
        } else {
            EXPECT_EQ(encoded ? readable(*encoded) : encoded.error(), expected(list(entry, "tokens"))) << entry.dump();
        }
    }
    EXPECT_GT(errors, 0u) << "only_second without a second text is among them";
}

TEST_P(EncoderOfKind, WindowsAreTheOverflowingTokensOfTransformers) {
    for (const auto& entry : list(vectors_, "windows")) {
        const WindowLimit limit{.max_tokens = static_cast<std::size_t>(*member(entry, "max_tokens").as_integer()),
                                .stride = static_cast<std::size_t>(*member(entry, "stride").as_integer()),
                                .windows_max = 100};
        const auto windows = tokenizer_.encode_windows(text(entry, "text"), limit);
        ASSERT_TRUE(windows.has_value()) << windows.error();
        const auto& wanted = list(entry, "windows");
        ASSERT_EQ(windows->size(), wanted.size()) << entry.dump();
        for (std::size_t i = 0; i < wanted.size(); ++i)
            EXPECT_EQ(readable((*windows)[i]), expected(*wanted[i].as_array())) << "window " << i << " of " << entry.dump();
    }
}

// encode() takes the post-processor's tokens from the same place.
TEST_P(EncoderOfKind, OneTextHasTheIdsOfEncode) {
    for (const auto& entry : list(vectors_, "single")) {
        EXPECT_EQ(tokenizer_.encode_pair(text(entry, "text"), std::nullopt, std::nullopt)->ids,
                  tokenizer_.encode(text(entry, "text"), true).value());
    }
}

TEST(EncoderTest, TokensAreSpelledAsInTheVocabularyWhichMayMarkSubwords) {
    struct Kind {
        const char* kind;
        bool marks_subwords;
        const char* token;
        const char* unknown;
    };
    for (const Kind& one :
         {Kind{"bert_cased", true, "##on", "[UNK]"}, Kind{"roberta", false, "Ġin", "<unk>"}, Kind{"xlm_roberta", false, "▁", "<unk>"}}) {
        const auto tokenizer = Tokenizer::load(encoder_folder_of(one.kind));
        EXPECT_EQ(tokenizer.marks_subwords(), one.marks_subwords) << one.kind;
        const auto id = tokenizer.find(one.token);
        ASSERT_NE(id, std::nullopt) << one.kind;
        EXPECT_EQ(tokenizer.token_spelling(*id), one.token);
        EXPECT_EQ(tokenizer.unknown_token(), tokenizer.find(one.unknown)) << one.kind;
        EXPECT_EQ(tokenizer.token_spelling(static_cast<TokenId>(tokenizer.vocabulary_size())), "");
        EXPECT_EQ(tokenizer.token_spelling(-1), "");
    }
}

TEST(EncoderTest, MaskAndPadAreTheConfiguredTokensOrThoseOfTheClass) {
    const auto roberta = Tokenizer::load(encoder_folder_of("roberta"));
    EXPECT_EQ(roberta.mask_token(), roberta.find("<mask>"));
    EXPECT_EQ(roberta.pad_token(), roberta.find("<pad>"));
    EXPECT_NE(roberta.mask_token(), std::nullopt);
    const auto gpt2 = Tokenizer::load(encoder_folder_of("gpt2"));
    EXPECT_EQ(gpt2.mask_token(), std::nullopt);
    EXPECT_EQ(gpt2.pad_token(), std::nullopt);

    const ModelFolder folder;
    folder.write("tokenizer.json", read(encoder_folder_of("bert_uncased") / "tokenizer.json"));
    const auto mask_with = [&](std::string_view config) {
        folder.write("tokenizer_config.json", config);
        const auto tokenizer = Tokenizer::load(folder.path());
        const auto id = tokenizer.mask_token();
        return id ? tokenizer.decode({&*id, 1}, false) : "none";
    };
    EXPECT_EQ(mask_with("{}"), "none") << "no class";
    EXPECT_EQ(mask_with(R"({"tokenizer_class":"BertTokenizerFast"})"), "[MASK]");
    EXPECT_EQ(mask_with(R"({"tokenizer_class":"BertTokenizer","mask_token":{"content":"[SEP]"}})"), "[SEP]");
    EXPECT_EQ(mask_with(R"({"mask_token":"[CLS]"})"), "[CLS]");
    EXPECT_EQ(mask_with(R"({"mask_token":"no such token"})"), "none");
    folder.write("special_tokens_map.json", R"({"mask_token":"[PAD]"})");
    EXPECT_EQ(mask_with("{}"), "[PAD]");
    folder.write("config.json", R"({"model_type":"bert"})");
    folder.write("special_tokens_map.json", "{}");
    EXPECT_EQ(mask_with("{}"), "[MASK]") << "the model type names the class";
}

// transformers gives its classes' options precedence over tokenizer.json; many cased checkpoints have a file that disagrees.
TEST(EncoderTest, OptionsOfTheConfigPrecedeThoseOfTheFile) {
    const ModelFolder folder;
    const auto tokens_of = [&](const char* kind, std::string_view config, std::string_view input) {
        folder.write("tokenizer.json", read(encoder_folder_of(kind) / "tokenizer.json"));
        folder.write("tokenizer_config.json", config);
        const auto tokenizer = Tokenizer::load(folder.path());
        std::string words;
        const auto encoded = tokenizer.encode(input, false).value();
        for (const TokenId id : encoded) words += "|" + tokenizer.token_bytes(id);
        return words;
    };
    EXPECT_EQ(tokens_of("bert_uncased", R"({"tokenizer_class":"BertTokenizer"})", "DEPOT é"), "| depot| e");
    EXPECT_NE(tokens_of("bert_uncased", R"({"tokenizer_class":"BertTokenizer","do_lower_case":false})", "DEPOT"), "| depot");
    EXPECT_EQ(tokens_of("bert_uncased", R"({"tokenizer_class":"BertTokenizer","strip_accents":false})", "é"), "| [UNK]")
        << "an é without its accent is known";
    EXPECT_EQ(tokens_of("bert_uncased", R"({"tokenizer_class":"BertTokenizer"})", "卡车"), "| 卡| 车");
    EXPECT_NE(tokens_of("bert_uncased", R"({"tokenizer_class":"BertTokenizer","tokenize_chinese_chars":false})", "卡车"), "| 卡| 车");
    EXPECT_EQ(tokens_of("bert_cased", R"({"tokenizer_class":"BertTokenizer"})", "THE"), "| the") << "the class lowers by default";
    EXPECT_NE(tokens_of("bert_cased", R"({"tokenizer_class":"PreTrainedTokenizerFast"})", "THE"), "| the") << "this one changes nothing";
    EXPECT_EQ(tokens_of("roberta", R"({"tokenizer_class":"RobertaTokenizer"})", "the"), "|t|he");
    EXPECT_EQ(tokens_of("roberta", R"({"tokenizer_class":"RobertaTokenizer","add_prefix_space":true})", "the"), "| the");
    for (const char* name : {"GPT2Tokenizer", "CodeGenTokenizer", "Qwen2TokenizerFast", "CohereTokenizer", "GPTNeoXTokenizerFast"}) {
        const auto with = [&](const char* option) { return fmt::format(R"({{"tokenizer_class":"{}"{}}})", name, option); };
        for (const char* kind : {"gpt2", "qwen2"}) {  // whose files have the part alone, and after another one
            EXPECT_EQ(tokens_of(kind, with(""), "the"), "|t|he") << name;
            EXPECT_EQ(tokens_of(kind, with(R"(,"add_prefix_space":true)"), "the"), "| the") << name;
        }
    }
    EXPECT_EQ(tokens_of("gpt2", R"({"tokenizer_class":"PreTrainedTokenizerFast"})", "a<|endoftext|>"), "|a|<|endoftext|>");
    EXPECT_EQ(tokens_of("gpt2", R"({"tokenizer_class":"PreTrainedTokenizerFast","split_special_tokens":true})", "a<|endoftext|>"),
              "|a|<|||e|nd|o|f|t|e|x|t|||>");
    // For some models, transformers follows tokenizer.json whatever class is named, and for Qwen2 always the class of the model.
    folder.write("config.json", R"({"model_type":"olmo2"})");
    EXPECT_EQ(tokens_of("gpt2", R"({"tokenizer_class":"GPT2Tokenizer","add_prefix_space":true})", "the"), "|t|he");
    EXPECT_EQ(tokens_of("bert_uncased", R"({"tokenizer_class":"BertTokenizer","do_lower_case":false})", "DEPOT"), "| depot");
    folder.write("config.json", R"({"model_type":"qwen2"})");
    EXPECT_EQ(tokens_of("qwen2", R"({"tokenizer_class":"LlamaTokenizerFast","add_prefix_space":true})", "the"), "| the");
}

// Pins: transformers' GPTNeoXTokenizer adds no tokens to a text, whatever the file and add_bos_token say.
TEST(EncoderTest, AClassMayReplaceThePostProcessorOfTheFile) {
    const ModelFolder folder;
    folder.write("tokenizer.json", read(encoder_folder_of("roberta") / "tokenizer.json"));
    const auto count_with = [&](std::string_view config, std::string_view model) {
        folder.write("tokenizer_config.json", config);
        folder.write("config.json", model);
        return Tokenizer::load(folder.path()).encode("the", true)->size();
    };
    EXPECT_EQ(count_with(R"({"tokenizer_class":"GPTNeoXTokenizerFast","add_bos_token":true})", "{}"), 2U);
    EXPECT_EQ(count_with(R"({"tokenizer_class":"GPTNeoXTokenizerFast"})", R"({"model_type":"llama"})"), 2U);
    EXPECT_EQ(count_with(R"({"tokenizer_class":"GPTNeoXTokenizerFast"})", R"({"model_type":"olmo2"})"), 4U);
    EXPECT_EQ(count_with(R"({"tokenizer_class":"PreTrainedTokenizerFast"})", R"({"model_type":"gpt_neox"})"), 4U);
}

TEST(EncoderTest, TrimOffsetsOfTheConfigPrecedesThatOfTheFile) {
    const ModelFolder folder;
    folder.write("tokenizer.json", read(encoder_folder_of("roberta") / "tokenizer.json"));
    const auto begin_of_last_token = [&](std::string_view config) {
        folder.write("tokenizer_config.json", config);
        return Tokenizer::load(folder.path()).encode_pair("lorry a", std::nullopt, std::nullopt)->spans.end()[-2].begin;
    };
    EXPECT_EQ(begin_of_last_token(R"({"tokenizer_class":"RobertaTokenizer"})"), 6);
    EXPECT_EQ(begin_of_last_token(R"({"tokenizer_class":"RobertaTokenizer","trim_offsets":false})"), 5);
}

TEST(EncoderTest, LimitsWithoutRoomAreRefused) {
    const auto tokenizer = Tokenizer::load(encoder_folder_of("bert_uncased"));
    const auto error_of = [&](const EncodeLimit& limit, std::optional<std::string_view> second = std::nullopt) {
        const auto encoded = tokenizer.encode_pair("a", second, limit);
        return encoded ? std::to_string(encoded->ids.size()) + " tokens" : encoded.error();
    };
    EXPECT_EQ(error_of({.max_tokens = 1}),
              "a limit of 1 token leaves no room for the text: the tokenizer adds 2 special tokens, so at least 3 are needed");
    EXPECT_EQ(error_of({.max_tokens = 2}),
              "a limit of 2 tokens leaves no room for the text: the tokenizer adds 2 special tokens, so at least 3 are needed");
    EXPECT_EQ(error_of({.max_tokens = 3}), "3 tokens");
    for (const std::size_t max_tokens : {2U, 3U, 4U}) {
        EXPECT_THAT(error_of({.max_tokens = max_tokens}, "b"),
                    HasSubstr("leaves no room for both texts: the tokenizer adds 3 special tokens, so at least 5 are needed"));
    }
    EXPECT_EQ(error_of({.max_tokens = 5}, "b"), "5 tokens");
    EXPECT_EQ(error_of({.max_tokens = 4}, ""), "4 tokens") << "an empty text needs no room";
    const EncodeLimit first_only{.max_tokens = 5, .strategy = TruncationStrategy::only_first};
    EXPECT_THAT(error_of(first_only, "b c"), HasSubstr("leaves no room for the first text beside the second"));
    EXPECT_THAT(error_of(first_only, "b c"), HasSubstr("so at least 6 are needed"));

    const auto windows_error = [&](std::size_t max_tokens, std::size_t stride, const std::string& input) {
        const auto windows = tokenizer.encode_windows(input, {.max_tokens = max_tokens, .stride = stride, .windows_max = 2});
        return windows ? std::to_string(windows->size()) + " windows" : windows.error();
    };
    EXPECT_EQ(windows_error(1, 0, "a"), "a window of 1 token has no room for the text beside 2 special tokens");
    EXPECT_EQ(windows_error(2, 0, "a"), "a window of 2 tokens has no room for the text beside 2 special tokens");
    EXPECT_EQ(windows_error(8, 6, "a"), "a stride of 6 tokens is too large: a window has room for 6 tokens of the text, so give at most 5");
    EXPECT_EQ(windows_error(8, 5, "a b c d e f g"), "2 windows");
    EXPECT_EQ(windows_error(8, 5, ""), "1 windows");
    EXPECT_EQ(windows_error(8, 5, "a b c d e f g h"),
              "the text has 3 windows of 8 tokens, and its job has room for 2 more: split the job, or choose a smaller stride");
}

// "[CLS] in a b [SEP] | [CLS] in b c [SEP]"
TEST(EncoderTest, EachWindowBeginsWithWhatIsRepeated) {
    const auto tokenizer = Tokenizer::load(encoder_folder_of("bert_cased"));
    const auto shown = [&](const std::string& input, const WindowLimit& limit) {
        const auto windows = tokenizer.encode_windows(input, limit);
        if (!windows) return windows.error();
        std::string line;
        for (const Encoding& window : *windows) {
            for (std::size_t i = 0; i < window.ids.size(); ++i) {
                line += tokenizer.token_spelling(window.ids[i]);
                if (window.spans[i].text == 0) line += "@" + std::to_string(window.spans[i].begin);
                line += ' ';
            }
            line += "| ";
        }
        return line;
    };
    const WindowLimit limit{.max_tokens = 5, .stride = 1, .windows_max = 9, .repeated = 3};
    EXPECT_EQ(shown("in a b c", limit), "[CLS] in@0 a@3 b@5 [SEP] | [CLS] in@0 b@5 c@7 [SEP] | ");
    EXPECT_EQ(shown("in a b", limit), "[CLS] in@0 a@3 b@5 [SEP] | ");
    EXPECT_EQ(shown("in", limit), "[CLS] in@0 [SEP] | ");
    EXPECT_EQ(shown("in in a b", {.max_tokens = 5, .stride = 1, .windows_max = 9, .repeated = 6}),
              "a stride of 1 token is too large: a window has room for 1 token of the text, so give at most 0");
    EXPECT_EQ(shown("in in in a", {.max_tokens = 5, .windows_max = 9, .repeated = 9}),
              "a window of 5 tokens has no room for the text beside 2 special tokens and the prompt's 3");
    EXPECT_EQ(shown("in in a b", {.max_tokens = 5, .windows_max = 9, .repeated = 6}),
              "[CLS] in@0 in@3 a@6 [SEP] | [CLS] in@0 in@3 b@8 [SEP] | ");
}

TEST(EncoderTest, TextsThatAreNotUtf8AreRefused) {
    const auto tokenizer = Tokenizer::load(encoder_folder_of("bert_uncased"));
    EXPECT_EQ(tokenizer.encode_pair("ab\xff", std::nullopt, std::nullopt).error(), "the text is not valid UTF-8 at byte 2");
    EXPECT_EQ(tokenizer.encode_pair("ab", "\xff", std::nullopt).error(), "the second text is not valid UTF-8 at byte 0");
    EXPECT_EQ(tokenizer.encode_windows("a\xff", {.max_tokens = 8, .windows_max = 1}).error(), "the text is not valid UTF-8 at byte 1");
}

// As the Python library does.
TEST(EncoderTest, WithoutAPostProcessorThePairIsJoined) {
    const ModelFolder folder;
    folder.write("tokenizer.json", R"({"version":"1.0","added_tokens":[],"pre_tokenizer":{"type":"WhitespaceSplit"},"model":)"
                                   R"({"type":"WordLevel","unk_token":"<unk>","vocab":{"<unk>":0,"a":1,"b":2}}})");
    const auto tokenizer = Tokenizer::load(folder.path());
    EXPECT_EQ(readable(tokenizer.encode_pair("a b", "b a", std::nullopt).value()),
              "1 0 0 0 0 1\n"
              "2 0 0 1 2 3\n"
              "2 1 1 0 0 1\n"
              "1 1 1 1 2 3\n");
    EXPECT_EQ(readable(tokenizer.encode_pair("a", std::nullopt, std::nullopt).value()), "1 0 0 0 0 1\n");
    EXPECT_TRUE(tokenizer.takes_pairs());
    EXPECT_EQ(tokenizer.special_tokens_added(true), 0);
}

TEST(EncoderTest, ATemplateWithoutTheSecondTextDoesNotTakePairs) {
    const ModelFolder folder;
    const auto takes_pairs_with = [&](std::string_view pair) {
        folder.write("tokenizer.json",
                     R"({"version":"1.0","added_tokens":[],"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":)"
                     R"({"id":"A","type_id":0}}],"pair":[)" +
                         std::string(pair) +
                         R"(],"special_tokens":{}},)"
                         R"("model":{"type":"WordLevel","unk_token":"<unk>","vocab":{"<unk>":0}}})");
        return Tokenizer::load(folder.path()).takes_pairs();
    };
    EXPECT_TRUE(takes_pairs_with(R"({"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}})"));
    EXPECT_FALSE(takes_pairs_with(R"({"Sequence":{"id":"A","type_id":0}})"));
    EXPECT_FALSE(takes_pairs_with(R"({"Sequence":{"id":"B","type_id":0}})"));
}

}  // namespace
}  // namespace lorry::engine
