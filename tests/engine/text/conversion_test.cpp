// Tokenizers of models without tokenizer.json: Tokenizer makes of vocab.txt, merges.txt and SentencePiece models what transformers makes
// of them, and refuses broken files and unknown classes by name.
#include <random>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/text/tokenizer.h"
#include "tests/engine/text/encoder_vectors.h"
#include "tests/support/labels.h"

namespace lorry::engine {
namespace {

// No other thread takes part.
const tests::Labelled conversions_without_tsan{"*", {tests::Label::not_tsan}};

using namespace text_vectors;
using testing::HasSubstr;

std::string conversion_error(const ModelFolder& folder) {
    try {
        Tokenizer::load(folder.path());
        return "loaded";
    } catch (const std::runtime_error& error) {
        return error.what();
    }
}

void copy_without_json(const std::string& kind, const ModelFolder& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(encoder_folder_of(kind))) {
        const auto name = entry.path().filename().string();
        if (name != "tokenizer.json" && name != "vectors.json") folder.write(name, read(entry.path()));
    }
}

class ConvertedKind : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override { copy_without_json(GetParam(), folder_); }

    const ModelFolder folder_;
};

std::vector<std::string> converted_kinds() {
    auto kinds = encoder_kinds;
    std::erase(kinds, "modernbert");  // never had other files
    return kinds;
}

INSTANTIATE_TEST_SUITE_P(Kinds, ConvertedKind, testing::ValuesIn(converted_kinds()), [](const auto& kind) { return kind.param; });

TEST_P(ConvertedKind, EncodesTextsAndPairsAsTransformersDoes) {
    EXPECT_GT(compare_texts_and_pairs(Tokenizer::load(folder_.path()), encoder_vectors_of(GetParam())), 0u);
}

TEST_P(ConvertedKind, HasTheTokensOfTheFileThatTransformersWrites) {
    const auto converted = Tokenizer::load(folder_.path());
    const auto saved = Tokenizer::load(encoder_folder_of(GetParam()));
    ASSERT_EQ(converted.vocabulary_size(), saved.vocabulary_size());
    for (TokenId id = 0; id < static_cast<TokenId>(saved.vocabulary_size()); ++id) {
        EXPECT_EQ(converted.token_bytes(id), saved.token_bytes(id)) << id;
        EXPECT_EQ(converted.is_special(id), saved.is_special(id)) << id;
        EXPECT_EQ(converted.decode({&id, 1}, false), saved.decode({&id, 1}, false)) << id;
    }
    EXPECT_EQ(converted.mask_token(), saved.mask_token());
    EXPECT_EQ(converted.pad_token(), saved.pad_token());
}

// A download can break anywhere. What loads by chance must encode; nothing may end the program.
TEST_P(ConvertedKind, BrokenFilesAreErrorsOrTokenizers) {
    const std::uint64_t seed = 20261126;
    std::mt19937_64 random(seed);
    for (const char* name :
         {"vocab.txt", "vocab.json", "merges.txt", "spm.model", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model"}) {
        if (!std::filesystem::exists(folder_.path() / name)) continue;
        const std::string whole = read(folder_.path() / name);
        int refused = 0;
        for (int i = 0; i < 40; ++i) {
            std::string broken = whole;
            if (i % 2 == 0) broken.resize(random() % whole.size());
            for (int flips = 0; flips < 3 && !broken.empty(); ++flips) broken[random() % broken.size()] = static_cast<char>(random());
            folder_.write(name, broken);
            try {
                const auto encoded = Tokenizer::load(folder_.path()).encode_pair("The lorry ﬁ 卡", std::nullopt, std::nullopt);
                EXPECT_TRUE(encoded.has_value() || !encoded.error().empty());
            } catch (const std::runtime_error& error) {
                ++refused;
                EXPECT_THAT(error.what(), HasSubstr(folder_.path().string())) << "seed " << seed;
            }
        }
        EXPECT_GT(refused, 0) << name << ", seed " << seed;
        folder_.write(name, whole);
    }
}

TEST(ConversionTest, TheClassIsTheConfiguredOneOrThatOfTheModelType) {
    const ModelFolder folder;
    folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n");
    folder.write("config.json", R"({"model_type":"electra"})");
    EXPECT_EQ(conversion_error(folder), "loaded");
    folder.write("config.json", R"({"model_type":"electra","tokenizer_class":"GPT2Tokenizer"})");
    EXPECT_THAT(conversion_error(folder), HasSubstr("vocab.json is missing"));
    folder.write("tokenizer_config.json", R"({"tokenizer_class":"DistilBertTokenizerFast"})");
    EXPECT_EQ(conversion_error(folder), "loaded") << "tokenizer_config.json precedes config.json";
}

TEST(ConversionTest, AnUnknownClassIsRefusedByNameWithWhatToDo) {
    const ModelFolder folder;
    folder.write("vocab.txt", "a\n");
    const auto error_of = [&](std::string_view config, std::string_view model) {
        folder.write("tokenizer_config.json", config);
        folder.write("config.json", model);
        return conversion_error(folder);
    };
    const auto unknown = error_of(R"({"tokenizer_class":"FlaubertTokenizer"})", "{}");
    EXPECT_THAT(unknown, HasSubstr("Lorry cannot make one for the tokenizer class FlaubertTokenizer; save the tokenizer with transformers, "
                                   "AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER), which writes tokenizer.json"));
    EXPECT_THAT(error_of("{}", R"({"model_type":"bert-japanese"})"), HasSubstr("the tokenizer class bert-japanese;"));
    EXPECT_THAT(error_of("{}", "{}"), HasSubstr("neither tokenizer_config.json (tokenizer_class) nor config.json (model_type) names the"));
}

TEST(ConversionTest, VocabTxtMayHaveWindowsLines) {
    const ModelFolder folder;
    folder.write("config.json", R"({"model_type":"bert"})");
    folder.write("vocab.txt", "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\nthe\r\n##re");
    const auto tokenizer = Tokenizer::load(folder.path());
    EXPECT_EQ(tokenizer.vocabulary_size(), 7u);
    EXPECT_EQ(tokenizer.encode("there", true).value(), (std::vector<TokenId>{2, 5, 6, 3}));
    EXPECT_EQ(tokenizer.mask_token(), 4);
}

TEST(ConversionTest, OtherSpecialTokensOfTheConfigReplaceThoseOfTheClass) {
    const ModelFolder folder;
    folder.write("config.json", R"({"model_type":"bert"})");
    folder.write("vocab.txt", "<p>\n<u>\n<c>\n<s>\n<m>\nthe\n");
    folder.write("special_tokens_map.json",
                 R"({"pad_token":"<p>","unk_token":"<u>","cls_token":"<c>","sep_token":{"content":"<s>"},"mask_token":"<m>"})");
    const auto tokenizer = Tokenizer::load(folder.path());
    EXPECT_EQ(tokenizer.encode("The lorry <m>", true).value(), (std::vector<TokenId>{2, 5, 1, 4, 3}));
    EXPECT_EQ(tokenizer.pad_token(), 0);
    EXPECT_TRUE(tokenizer.is_special(4));
}

TEST(ConversionTest, AMaskTakesTheSpaceBeforeItUnlessTheConfigSaysOtherwise) {
    const ModelFolder folder;
    copy_without_json("roberta", folder);
    const auto count_with = [&](std::string_view config) {
        folder.write("tokenizer_config.json", config);
        return Tokenizer::load(folder.path()).encode("a <mask>", false)->size();
    };
    EXPECT_EQ(count_with(R"({"tokenizer_class":"RobertaTokenizer"})"), 2u);
    EXPECT_EQ(count_with(R"({"tokenizer_class":"RobertaTokenizer","mask_token":{"content":"<mask>","lstrip":false}})"), 3u);
}

// The tokens that fine-tuning added: with their ids in tokenizer_config.json, and in older models in added_tokens.json.
TEST(ConversionTest, AddedTokensFollowTheVocabulary) {
    const ModelFolder folder;
    folder.write("config.json", R"({"model_type":"bert"})");
    folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n");
    folder.write("added_tokens.json", R"({"[B]":7,"[A]":6})");
    EXPECT_EQ(Tokenizer::load(folder.path()).encode("the[B][A]", false).value(), (std::vector<TokenId>{5, 7, 6}));
    folder.write("added_tokens.json", R"({"[B]":9})");
    EXPECT_THAT(conversion_error(folder), HasSubstr(R"(the token "[B]")"));
    folder.write("added_tokens.json", R"({"[B]":"9"})");
    EXPECT_THAT(conversion_error(folder), HasSubstr("added_tokens.json: [B] must be a token id"));
    folder.write("tokenizer_config.json", R"({"added_tokens_decoder":{"6":{"content":"[B]"}}})");
    EXPECT_EQ(Tokenizer::load(folder.path()).encode("the[B]", false).value(), (std::vector<TokenId>{5, 6})) << "the newer place precedes";
}

TEST(ConversionTest, AVocabularyWithoutItsSpecialTokensIsRefused) {
    const ModelFolder folder;
    folder.write("config.json", R"({"model_type":"bert"})");
    folder.write("vocab.txt", "the\nlorry\n");
    EXPECT_THAT(conversion_error(folder), HasSubstr(R"(vocab.txt has no "[UNK]", the token of unknown words)"));
    folder.write("vocab.txt", "\xff\n");
    EXPECT_THAT(conversion_error(folder), HasSubstr("vocab.txt is not valid UTF-8 at byte 0"));
}

TEST(ConversionTest, MergesThatAreNotPairsAreRefusedByLine) {
    const ModelFolder folder;
    folder.write("config.json", R"({"model_type":"gpt2"})");
    folder.write("vocab.json", R"({"a":0,"b":1,"ab":2,"<|endoftext|>":3})");
    const auto error_of = [&](std::string_view merges) {
        folder.write("merges.txt", merges);
        return conversion_error(folder);
    };
    EXPECT_EQ(error_of("#version: 0.2\na b\n\n"), "loaded");
    EXPECT_THAT(error_of("#version: 0.2\na b\nab\n"), HasSubstr("merges.txt, line 3: must be two tokens with a space between them"));
    EXPECT_THAT(error_of("a b a\n"), HasSubstr("merges.txt, line 1"));
    EXPECT_THAT(error_of("a c\n"), HasSubstr("`c` out of vocabulary"));
    folder.write("vocab.json", R"(["a"])");
    EXPECT_THAT(error_of("a b\n"), HasSubstr("vocab.json must be an object with the ids of tokens"));
}

// Fields of a protobuf message: (number << 3 | wire type), then the value.
std::string piece_of(std::string_view text, std::string_view rest = "") {
    const auto length = [](std::size_t size) { return std::string{static_cast<char>(size | 0x80), static_cast<char>(size >> 7)}; };
    const std::string piece = "\x0a" + length(text.size()) + std::string(text) + std::string(rest);
    return "\x0a" + length(piece.size()) + piece;
}

TEST(ConversionTest, SentencePieceModelsThatAreBrokenOrTooLargeAreRefused) {
    const ModelFolder folder;
    folder.write("config.json", R"({"model_type":"t5"})");
    const auto error_of = [&](std::string_view model) {
        folder.write("spiece.model", model);
        return conversion_error(folder);
    };
    const std::string pieces = piece_of("<pad>") + piece_of("</s>") + piece_of("<unk>");
    const std::string trainer = {'\x12', 3, '\xc0', 2, 2};  // unk_id 2
    EXPECT_EQ(error_of(pieces + trainer), "loaded");
    EXPECT_THAT(error_of(""), HasSubstr("spiece.model: the file is empty"));
    EXPECT_THAT(error_of("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("Git LFS pointer"));
    EXPECT_THAT(error_of("hello"), HasSubstr("spiece.model: this is not a SentencePiece model"));
    EXPECT_THAT(error_of(trainer), HasSubstr("it has no pieces"));
    EXPECT_THAT(error_of(pieces.substr(0, pieces.size() - 1)), HasSubstr("it ends too early"));
    EXPECT_THAT(error_of(std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11)), HasSubstr("it ends too early"));
    EXPECT_THAT(error_of(std::string(1, '\x08') + std::string(11, '\xff')), HasSubstr("a number has more than 10 bytes"));
    EXPECT_THAT(error_of("\x0b"), HasSubstr("wire type 3"));
    EXPECT_THAT(error_of(piece_of("\xff")), HasSubstr("piece 0: is not valid UTF-8"));
    EXPECT_THAT(error_of(pieces + piece_of(std::string(257, 'x'))), HasSubstr("piece 3: has 257 bytes; allowed are up to 256"));
    EXPECT_THAT(error_of(piece_of("a", std::string("\x15\x00\x00\xc0\x7f", 5))), HasSubstr("piece 0: its score is NaN"));
    EXPECT_THAT(error_of(pieces + std::string("\x12\x02\x18\x02", 4)),
                HasSubstr("not of the algorithm Unigram, which the tokenizer class"));
    EXPECT_THAT(error_of(pieces + std::string("\x12\x02\x18\x03", 4)), HasSubstr("models of whole words are not supported"));
    EXPECT_THAT(error_of(pieces + std::string("\x12\x02\x18\x04", 4)), HasSubstr("models of characters are not supported"));
    EXPECT_THAT(error_of(piece_of("<unk>")), HasSubstr("the vocabulary has no token"));
    std::string many;
    for (int i = 0; i <= 1 << 21; ++i) many += std::string("\x0a\x00", 2);
    EXPECT_THAT(error_of(many), HasSubstr("there are more than 2097152 pieces"));
    EXPECT_THAT(error_of(std::string((std::size_t{64} << 20) + 1, 'x')), HasSubstr("is longer than 67108864 bytes"));
}

TEST(ConversionTest, ANumberWithACommaIsTwoTokensForAlbert) {
    const ModelFolder folder;
    const std::string one("\x15\x00\x00\x80\xbf", 5);  // the score -1
    const std::string two("\x15\x00\x00\x00\xc0", 5);  // -2
    std::string model;
    for (const char* piece : {"<pad>", "<unk>", "[CLS]", "[SEP]"}) model += piece_of(piece);
    model += piece_of("▁1,", one) + piece_of("▁1", two) + piece_of(",", two) + piece_of("▁a,", one) + std::string{'\x12', 3, '\xc0', 2, 1};
    folder.write("spiece.model", model);
    folder.write("config.json", R"({"model_type":"albert"})");
    EXPECT_EQ(Tokenizer::load(folder.path()).encode("1, A,", false).value(), (std::vector<TokenId>{5, 6, 7}));
}

TEST(ConversionTest, NumberAndKindOfExtraTokensOfT5AreChecked) {
    const ModelFolder folder;
    copy_without_json("t5", folder);
    folder.write("tokenizer_config.json", R"({"tokenizer_class":"T5Tokenizer","extra_ids":2})");
    const auto tokenizer = Tokenizer::load(folder.path());
    EXPECT_EQ(*tokenizer.find("<extra_id_0>"), *tokenizer.find("<extra_id_1>") + 1);
    EXPECT_EQ(tokenizer.find("<extra_id_2>"), std::nullopt);
    folder.write("tokenizer_config.json", R"({"tokenizer_class":"T5Tokenizer","extra_ids":1000000000})");
    EXPECT_THAT(conversion_error(folder), HasSubstr("extra_ids is 1000000000; allowed are up to 10000"));
}

}  // namespace
}  // namespace lorry::engine
