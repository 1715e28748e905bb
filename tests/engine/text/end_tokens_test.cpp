// The tokens that end a text: the configuration's and the tokenizer's, as vLLM 0.32 joins them.
#include "engine/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/text/vectors.h"
#include "tests/support/gpt2_tokenizer.h"

namespace lorry::engine {
namespace {

using testing::ElementsAre;

constexpr std::int64_t vocabulary = 1000;
const TokenId end_of_text = tests::gpt2_tokenizer().find("<|endoftext|>").value();

// The end tokens of a folder with GPT-2's tokenizer.
class EndTokens : public testing::Test {
protected:
    EndTokens() {
        std::filesystem::copy_file(text_vectors::folder_of("gpt2") / "tokenizer.json", folder.path() / "tokenizer.json");
    }
    std::vector<TokenId> end_tokens(std::vector<TokenId> configured, std::int64_t drawn = vocabulary) const {
        return Tokenizer::load(folder.path()).end_tokens(configured, drawn);
    }
    text_vectors::ModelFolder folder;
};

TEST_F(EndTokens, ComeFromTheConfigurationAndTheTokenizer) {
    EXPECT_THAT(end_tokens({7}), ElementsAre(7)) << "there is no tokenizer_config.json";
    folder.write("tokenizer_config.json", R"({"eos_token":{"content":"<|endoftext|>"},"added_tokens_decoder":{}})");
    EXPECT_THAT(end_tokens({7}), ElementsAre(7, end_of_text));
    EXPECT_THAT(end_tokens({end_of_text, 7}), ElementsAre(end_of_text, 7));
    EXPECT_THAT(end_tokens({}), ElementsAre(end_of_text));
}

// Some tokenizers have more tokens than their models. Banning such a token until min_tokens is reached would be out of bounds.
TEST_F(EndTokens, LeaveOutWhatTheModelCannotDraw) {
    folder.write("tokenizer_config.json", R"({"eos_token":"<|endoftext|>"})");
    EXPECT_THAT(end_tokens({7}, end_of_text), ElementsAre(7));
    EXPECT_THAT(end_tokens({7}, end_of_text + 1), ElementsAre(7, end_of_text));
}

TEST_F(EndTokens, LeaveOutATokenThatTheTokenizerDoesNotHave) {
    folder.write("tokenizer_config.json", R"({"eos_token":"</s>"})");
    EXPECT_THAT(end_tokens({7}), ElementsAre(7));
    folder.write("tokenizer_config.json", R"({"eos_token":null})");
    EXPECT_THAT(end_tokens({7}), ElementsAre(7));
}

TEST_F(EndTokens, ComeFromSpecialTokensMapInOldCheckpoints) {
    folder.write("tokenizer_config.json", "{}");
    folder.write("special_tokens_map.json", R"({"eos_token":"<|endoftext|>"})");
    EXPECT_THAT(end_tokens({7}), ElementsAre(7, end_of_text));
    folder.write("tokenizer_config.json", R"({"added_tokens_decoder":{}})");
    EXPECT_THAT(end_tokens({7}), ElementsAre(7)) << "special_tokens_map.json is ignored if added_tokens_decoder exists";
}

}  // namespace
}  // namespace lorry::engine
