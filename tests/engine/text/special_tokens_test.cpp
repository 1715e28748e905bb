// The tokens that end a text: the configuration's and the tokenizer's, as vLLM 0.32 joins them.
#include "engine/text/special_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/text/vectors.h"
#include "tests/support/gpt2_tokenizer.h"

namespace lorry::engine {
namespace {

using testing::ElementsAre;

const TokenId end_of_text = tests::gpt2_tokenizer().find("<|endoftext|>").value();

std::vector<TokenId> end_tokens(const text_vectors::ModelFolder& folder, std::vector<TokenId> configured) {
    return end_tokens_of(folder.path(), configured, tests::gpt2_tokenizer());
}

TEST(EndTokens, AreTheConfigurationsAndTheTokenizers) {
    const text_vectors::ModelFolder folder;
    EXPECT_THAT(end_tokens(folder, {7}), ElementsAre(7)) << "there is no tokenizer_config.json";
    folder.write("tokenizer_config.json", R"({"eos_token":{"content":"<|endoftext|>"},"added_tokens_decoder":{}})");
    EXPECT_THAT(end_tokens(folder, {7}), ElementsAre(7, end_of_text));
    EXPECT_THAT(end_tokens(folder, {end_of_text, 7}), ElementsAre(end_of_text, 7));
    EXPECT_THAT(end_tokens(folder, {}), ElementsAre(end_of_text));
}

TEST(EndTokens, LeaveOutATokenThatTheTokenizerDoesNotHave) {
    const text_vectors::ModelFolder folder;
    folder.write("tokenizer_config.json", R"({"eos_token":"</s>"})");
    EXPECT_THAT(end_tokens(folder, {7}), ElementsAre(7));
    folder.write("tokenizer_config.json", R"({"eos_token":null})");
    EXPECT_THAT(end_tokens(folder, {7}), ElementsAre(7));
}

TEST(EndTokens, OfAnOldCheckpointAreInAFileOfTheirOwn) {
    const text_vectors::ModelFolder folder;
    folder.write("tokenizer_config.json", "{}");
    folder.write("special_tokens_map.json", R"({"eos_token":"<|endoftext|>"})");
    EXPECT_THAT(end_tokens(folder, {7}), ElementsAre(7, end_of_text));
    folder.write("tokenizer_config.json", R"({"added_tokens_decoder":{}})");
    EXPECT_THAT(end_tokens(folder, {7}), ElementsAre(7)) << "newer ones do not read it";
}

}  // namespace
}  // namespace lorry::engine
