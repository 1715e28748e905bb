// Compares Tokenizer with the vectors of the Python tokenizers library, and checks its errors.
#include <array>
#include <limits>
#include <set>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/text/tokenizer.h"
#include "tests/engine/text/vectors.h"

namespace lorry::engine {
namespace {

using namespace text_vectors;
using testing::HasSubstr;

// A complete tokenizer.json with a word-level model. `rest` has further members, each followed by a comma.
std::string word_level_json(std::string_view vocabulary, std::string_view rest = "") {
    return R"({"version":"1.0","added_tokens":[],)" + std::string(rest) + R"("model":{"type":"WordLevel","unk_token":"<unk>","vocab":)" +
           std::string(vocabulary) + "}}";
}

std::string tokenizer_load_error(const ModelFolder& folder) {
    try {
        Tokenizer::load(folder.path());
        return "loaded";
    } catch (const std::runtime_error& error) {
        return error.what();
    }
}

class TokenizerOfKind : public testing::TestWithParam<std::string> {
protected:
    const schema::Json vectors_ = vectors_of(GetParam());
    const Tokenizer tokenizer_ = Tokenizer::load(folder_of(GetParam()));
};

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerOfKind, testing::ValuesIn(kinds), [](const auto& kind) { return kind.param; });

TEST_P(TokenizerOfKind, EncodesAsThePythonLibraryDoes) {
    for (const auto& entry : list(vectors_, "encode")) {
        const auto& input = text(entry, "text");
        EXPECT_EQ(tokenizer_.encode(input, false).value(), ids(entry, "ids")) << input;
        EXPECT_EQ(tokenizer_.encode(input, true).value(), ids(entry, "with_special")) << input;
    }
}

TEST_P(TokenizerOfKind, DecodesAsThePythonLibraryDoes) {
    for (const auto& entry : list(vectors_, "decode")) {
        EXPECT_EQ(tokenizer_.decode(ids(entry, "ids"), false), text(entry, "text")) << entry.dump();
        EXPECT_EQ(tokenizer_.decode(ids(entry, "ids"), true), text(entry, "skipped")) << entry.dump();
    }
}

TEST_P(TokenizerOfKind, KnowsItsVocabulary) {
    EXPECT_EQ(static_cast<std::int64_t>(tokenizer_.vocabulary_size()), member(vectors_, "vocabulary_size").as_integer());
    for (const auto& entry : list(vectors_, "tokens")) {
        EXPECT_EQ(tokenizer_.find(text(entry, "token")), member(entry, "id").as_integer());
    }
    EXPECT_EQ(tokenizer_.find("no such token"), std::nullopt);
    EXPECT_EQ(tokenizer_.find("\xff"), std::nullopt);

    std::vector<TokenId> special;
    for (TokenId id = -1; id <= static_cast<TokenId>(tokenizer_.vocabulary_size()); ++id) {
        if (tokenizer_.is_special(id)) special.push_back(id);
    }
    EXPECT_EQ(special, ids(vectors_, "special"));
}

TEST_P(TokenizerOfKind, TokenBytesJoinToTheText) {
    // After a first token, so that no leading space is dropped.
    for (const auto& entry : list(vectors_, "encode")) {
        const auto whole = ids(entry, "ids");
        std::string joined;
        for (std::size_t i = 1; i < whole.size(); ++i) joined += tokenizer_.token_bytes(whole[i]);
        const auto first = whole.empty() ? "" : tokenizer_.decode({whole.data(), 1}, false);
        const auto both = tokenizer_.decode(whole, false);
        // If tokens are not whole characters, the decoded text has lost their bytes.
        if (both.find("\uFFFD") != std::string::npos || first.find("\uFFFD") != std::string::npos) continue;
        EXPECT_EQ(first + joined, both);
    }
}

TEST_P(TokenizerOfKind, RefusesBytesThatAreNotUtf8) {
    for (const char* bytes : {"ab\xff", "ab\xE2\x82", "ab\xC0\x80", "ab\xED\xA0\x80"}) {
        const auto ids = tokenizer_.encode(bytes, false);
        ASSERT_FALSE(ids.has_value());
        EXPECT_EQ(ids.error(), "the text is not valid UTF-8 at byte 2");
    }
}

TEST_P(TokenizerOfKind, LeavesOutIdsWithoutAToken) {
    const auto id = *tokenizer_.find(text(list(vectors_, "tokens").back(), "token"));
    const auto beyond = static_cast<TokenId>(tokenizer_.vocabulary_size());
    EXPECT_EQ(tokenizer_.decode(std::vector<TokenId>{-1, id, beyond, std::numeric_limits<TokenId>::max()}, false),
              tokenizer_.decode(std::vector<TokenId>{id}, false));
    EXPECT_EQ(tokenizer_.token_bytes(-1), "");
    EXPECT_EQ(tokenizer_.token_bytes(beyond), "");
}

TEST(TokenizerTest, TokenBytesUndoTheSpellingOfBytes) {
    const auto byte_level = Tokenizer::load(folder_of("gpt2"));
    EXPECT_EQ(byte_level.token_bytes(*byte_level.find("Ġthe")), " the");
    EXPECT_EQ(byte_level.token_bytes(*byte_level.find("Ċ")), "\n");
    EXPECT_EQ(byte_level.token_bytes(*byte_level.find("ð")), "\xF0");
    EXPECT_EQ(byte_level.token_bytes(*byte_level.find("<|endoftext|>")), "<|endoftext|>");
    const auto fallback = Tokenizer::load(folder_of("llama2"));
    EXPECT_EQ(fallback.token_bytes(*fallback.find("▁the")), " the");
    EXPECT_EQ(fallback.token_bytes(*fallback.find("<0x0A>")), "\n");
    EXPECT_EQ(fallback.token_bytes(*fallback.find("<0xF0>")), "\xF0");
    EXPECT_EQ(fallback.token_bytes(*fallback.find("</s>")), "</s>");
}

TEST(TokenizerTest, AllBytesOfAByteLevelVocabularyAreCovered) {
    const auto tokenizer = Tokenizer::load(folder_of("gpt2"));
    std::set<std::string> bytes;
    for (TokenId id = 0; id < static_cast<TokenId>(tokenizer.vocabulary_size()); ++id) {
        if (tokenizer.token_bytes(id).size() == 1) bytes.insert(tokenizer.token_bytes(id));
    }
    EXPECT_EQ(bytes.size(), 256u);
}

TEST(TokenizerTest, IdsMayHaveHoles) {
    const ModelFolder folder;
    folder.write("tokenizer.json", word_level_json(R"({"<unk>":0,"b":7})"));
    const auto tokenizer = Tokenizer::load(folder.path());
    EXPECT_EQ(tokenizer.vocabulary_size(), 8u);
    EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{3, 7}, false), "b");
    EXPECT_EQ(tokenizer.token_bytes(3), "");
}

// As in transformers: some checkpoints have tokens that a fine-tuning tool added in tokenizer_config.json only.
TEST(TokenizerTest, TokensThatOnlyTheConfigHasAreAdded) {
    const ModelFolder folder;
    folder.write("tokenizer.json", word_level_json(R"({"<unk>":0,"a":1})", R"("pre_tokenizer":{"type":"WhitespaceSplit"},)"));
    folder.write("tokenizer_config.json", R"({"eos_token":"<|end|>","added_tokens_decoder":{"3":{"content":"<|end|>"},)"
                                          R"("2":{"content":"<|user|>","special":true},"1":{"content":"a"}}})");
    const auto tokenizer = Tokenizer::load(folder.path());
    EXPECT_EQ(tokenizer.vocabulary_size(), 4u);
    EXPECT_EQ(tokenizer.encode("<|user|>a<|end|>", false).value(), (std::vector<TokenId>{2, 1, 3}));
    EXPECT_TRUE(tokenizer.is_special(2));
    EXPECT_TRUE(tokenizer.is_special(3)) << "it is the eos_token";
    EXPECT_FALSE(tokenizer.is_special(1));
    EXPECT_EQ(tokenizer.end_tokens({}, 4), (std::vector<TokenId>{3}));
}

TEST(TokenizerTest, ATokenOfTheConfigThatWouldGetAnotherIdIsRefusedByName) {
    const ModelFolder folder;
    folder.write("tokenizer.json", word_level_json(R"({"<unk>":0,"a":1})"));
    folder.write("tokenizer_config.json", R"({"added_tokens_decoder":{"7":{"content":"<|end|>"}}})");
    EXPECT_THAT(tokenizer_load_error(folder),
                HasSubstr(R"(the token "<|end|>" is only in added_tokens_decoder of tokenizer_config.json, with the id 7; after)"));
    folder.write("tokenizer_config.json", R"({"added_tokens_decoder":{"x":{"content":"<|end|>"}}})");
    EXPECT_THAT(tokenizer_load_error(folder), HasSubstr("tokenizer_config.json: added_tokens_decoder.x must be a token id with"));
}

TEST(TokenizerTest, AGitLfsPointerIsNamed) {
    const ModelFolder folder;
    folder.write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7031863\n");
    EXPECT_THAT(tokenizer_load_error(folder),
                HasSubstr("tokenizer.json: this is a Git LFS pointer, not the file itself; run `git lfs pull`"));
}

TEST(TokenizerTest, ManyThreadsMayEncode) {
    const auto vectors = vectors_of("llama3");
    const auto tokenizer = Tokenizer::load(folder_of("llama3"));
    std::vector<std::jthread> threads;
    std::array<int, 4> wrong{};
    for (auto& count : wrong) {
        threads.emplace_back([&] {
            for (const auto& entry : list(vectors, "encode")) {
                const auto encoded = tokenizer.encode(text(entry, "text"), true);
                if (!encoded || *encoded != ids(entry, "with_special")) ++count;
            }
        });
    }
    threads.clear();
    EXPECT_THAT(wrong, testing::Each(0));
}

TEST(TokenizerTest, AMissingFileIsNamed) {
    const ModelFolder folder;
    EXPECT_THAT(tokenizer_load_error(folder), HasSubstr(folder.path().string() + ": there is no tokenizer.json, and neither"));
    folder.write("config.json", R"({"model_type":"bert"})");
    EXPECT_THAT(tokenizer_load_error(folder),
                HasSubstr((folder.path() / "vocab.txt").string() + " is missing, and there is no tokenizer.json"));
}

TEST(TokenizerTest, ABrokenFileIsNamedWithTheReason) {
    const ModelFolder folder;
    for (const char* content : {"", "{", "[]", R"({"model":{"type":"Unheard"}})", "\xff"}) {
        folder.write("tokenizer.json", content);
        EXPECT_THAT(tokenizer_load_error(folder), HasSubstr("tokenizer.json cannot be used: ")) << content;
    }
}

TEST(TokenizerTest, WhatCannotBeDoneRightIsRefusedByName) {
    const ModelFolder folder;
    const auto error_of = [&](const std::string& json) {
        folder.write("tokenizer.json", json);
        return tokenizer_load_error(folder);
    };
    EXPECT_THAT(error_of(word_level_json("{}")), HasSubstr("the vocabulary is empty"));
    EXPECT_THAT(error_of(word_level_json(R"({"<unk>":0,"a":4000000000})")), HasSubstr("token id 4000000000 is above the limit"));
    EXPECT_THAT(error_of(word_level_json(R"({"<unk>":0})", R"("decoder":{"type":"BPEDecoder","suffix":"</w>"},)")),
                HasSubstr("BPEDecoder"));
    EXPECT_THAT(error_of(word_level_json(R"({"<unk>":0})", R"("decoder":{"type":"Strip","content":"x","start":0,"stop":2},)")),
                HasSubstr("Strip that takes characters from the end"));
    EXPECT_THAT(
        error_of(word_level_json(R"({"<unk>":0})", R"("decoder":{"type":"Sequence","decoders":[)"
                                                   R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":true},)"
                                                   R"({"type":"Strip","content":" ","start":1,"stop":0}]},)")),
        HasSubstr("ByteLevel together with other decoders"));
    EXPECT_THAT(error_of(R"({"version":"1.0","added_tokens":[],"model":{"type":"BPE","dropout":0.1,"unk_token":null,)"
                         R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"vocab":{"a":0},"merges":[]}})"),
                HasSubstr("model.dropout"));
}

// Pins: a tokenizer of a few hundred bytes turned a prompt of 68 characters into gigabytes: first by normalizers that replace, then by
// those that write bytes as characters, by pre-tokenizers, and by decoders.
TEST(TokenizerTest, ATokenizerThatMultipliesTextsIsRefused) {
    const ModelFolder folder;
    const auto load = [&](const std::string& parts) {
        folder.write("tokenizer.json", word_level_json(R"({"<unk>":0,"a":1})", parts + ","));
        return tokenizer_load_error(folder);
    };
    const auto normalizer = [](const std::string& one) { return R"("normalizer":)" + one; };
    const auto replace = [](const std::string& pattern, std::size_t length) {
        return R"({"type":"Replace","pattern":)" + pattern + R"(,"content":")" + std::string(length, 'a') + R"("})";
    };
    const auto sequence = [](const std::string& key, const std::string& one, int times) {
        std::string list = one;
        for (int i = 1; i < times; ++i) list += "," + one;
        return '"' + key + R"(":{"type":"Sequence",")" + (key == "pre_tokenizer" ? "pretokenizers" : key + "s") + "\":[" + list + "]}";
    };
    const std::string byte_level = R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false})";
    const std::string metaspace = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})";

    EXPECT_EQ(load(normalizer(replace(R"({"String":" "})", 3))), "loaded");
    EXPECT_EQ(load(normalizer(replace(R"({"Regex":" {2,}"})", 132))), "loaded");
    EXPECT_EQ(load(sequence("normalizer", replace(R"({"String":"a"})", 2), 6)), "loaded");
    EXPECT_EQ(load(normalizer(R"({"type":"Prepend","prepend":"▁"})")), "loaded");
    EXPECT_EQ(load(normalizer(replace(R"({"String":"ab"})", 22)) + R"(,"pre_tokenizer":)" + metaspace), "loaded");
    EXPECT_EQ(load(sequence("decoder", replace(R"({"String":"▁"})", 1), 40)), "loaded");

    EXPECT_THAT(load(normalizer(replace(R"({"String":"a"})", 257))),
                HasSubstr("normalizer and pre_tokenizer can make a text 257 times longer"));
    EXPECT_THAT(load(normalizer(replace(R"({"Regex":"x*"})", 256))), HasSubstr("257 times"));
    EXPECT_THAT(load(sequence("normalizer", replace(R"({"String":"a"})", 2), 9)), HasSubstr("512 times"));
    EXPECT_THAT(load(sequence("normalizer", R"({"type":"Prepend","prepend":")" + std::string(2'000, 'a') + R"("})", 3)),
                HasSubstr("6000 bytes"));
    EXPECT_THAT(load(sequence("normalizer", R"({"type":"ByteLevel"})", 30)), HasSubstr("1073741824 times"));
    EXPECT_THAT(load(sequence("normalizer",
                              R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,)"
                              R"("strip_accents":null,"lowercase":true})",
                              9)),
                HasSubstr("512 times"));
    EXPECT_THAT(load(sequence("pre_tokenizer", byte_level, 9)), HasSubstr("512 times"));
    EXPECT_THAT(load(normalizer(replace(R"({"String":"a"})", 65)) + R"(,"pre_tokenizer":)" + metaspace), HasSubstr("260 times"));
    EXPECT_THAT(load(sequence("decoder", R"({"type":"WordPiece","prefix":"##","cleanup":false})", 9)), HasSubstr("512 times"));
    EXPECT_THAT(load(sequence("decoder", replace(R"({"String":"b"})", 17), 2)), HasSubstr("decoder can make a text 289 times longer"));
}

// The library's Strip decoder indexes out of bounds on an empty token: a real panic, which must end as an error.
TEST(TokenizerTest, APanicInTheLibraryBecomesAnError) {
    const ModelFolder folder;
    // A table of one empty entry, which the library looks behind.
    const std::string normalizer = R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"BAAAAAAAAAA="},)";
    folder.write("tokenizer.json", word_level_json(R"({"<unk>":0,"b":2})", normalizer));
    const Tokenizer tokenizer = Tokenizer::load(folder.path());
    EXPECT_THAT(tokenizer.encode("b", false).error(), HasSubstr("the text library failed: "));
    EXPECT_EQ(tokenizer.find("b"), 2) << "what does not fail goes on";
}

}  // namespace
}  // namespace lorry::engine
