// Tokenizers and chat templates as they were published, against what transformers makes of them. ops/setup --tests downloads them.
#include <array>

#include <gtest/gtest.h>

#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/text/vectors.h"
#include "tests/support/labels.h"

namespace lorry::engine {
namespace {

using namespace text_vectors;

// As in ops/setup.
constexpr std::array published_tokenizers = {"command_r_plus", "deepseek_v3", "gemma3",       "gpt2", "gptoss",
                                             "llama2",         "llama3_2",    "mistral_nemo", "qwen3"};

class PublishedTokenizer : public testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        if (!std::filesystem::exists(folder_)) GTEST_SKIP() << folder_ << " is not there; ops/setup --tests downloads it";
    }

    const std::filesystem::path folder_ = std::filesystem::path(LORRY_SOURCE_DIR) / ".deps" / "tokenizers" / GetParam();
    const schema::Json inputs_ = read_json(folder_of("published") / "texts.json");
    const schema::Json vectors_ = read_json(folder_of("published") / (GetParam() + std::string(".json")));
};

// Reading a vocabulary of 250,000 tokens takes long there.
const tests::Labelled large_vocabularies{"Names/PublishedTokenizer.*", {tests::Label::not_asan, tests::Label::not_tsan}};
INSTANTIATE_TEST_SUITE_P(Names, PublishedTokenizer, testing::ValuesIn(published_tokenizers),
                         [](const auto& name) { return std::string(name.param); });

TEST_P(PublishedTokenizer, EncodesAndDecodesAsTransformersDoes) {
    const Tokenizer tokenizer = Tokenizer::load(folder_);
    EXPECT_EQ(static_cast<std::int64_t>(tokenizer.vocabulary_size()), member(vectors_, "vocabulary_size").as_integer());
    const auto& texts = list(inputs_, "texts");
    const auto& encoded = list(vectors_, "encode");
    ASSERT_EQ(texts.size(), encoded.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const std::string& input = *texts[i].as_string();
        EXPECT_EQ(tokenizer.encode(input, false).value(), ids(encoded[i], "ids")) << input;
        const char* const with_special = encoded[i].find("with_special") != nullptr ? "with_special" : "ids";
        EXPECT_EQ(tokenizer.encode(input, true).value(), ids(encoded[i], with_special)) << input;
    }
    for (const schema::Json& entry : list(vectors_, "decode")) {
        EXPECT_EQ(tokenizer.decode(ids(entry, "ids"), false), text(entry, "text")) << entry.dump();
        EXPECT_EQ(tokenizer.decode(ids(entry, "ids"), true), text(entry, "skipped")) << entry.dump();
    }
}

TEST_P(PublishedTokenizer, RendersChatsAsTransformersDoes) {
    const std::optional<ChatTemplate> chat_template = ChatTemplate::load(folder_);
    const schema::Json* const chats = vectors_.find("chats");
    ASSERT_EQ(chat_template.has_value(), chats != nullptr);
    if (chats == nullptr) return;
    for (const auto& [name, expected] : *chats->as_object()) {
        SCOPED_TRACE(name);
        const schema::Json& chat = member(member(inputs_, "chats"), name);
        schema::Json extra = schema::Json::object({{"date_string", "27 Nov 2026"}});
        if (const schema::Json* const options = chat.find("extra")) {
            for (const auto& [key, value] : *options->as_object()) extra.set(key, value);
        }
        const schema::Json* const add = chat.find("add_generation_prompt");
        const auto actual = chat_template->render({.messages_json = dump_of(chat, "messages"),
                                                   .tools_json = dump_of(chat, "tools"),
                                                   .add_generation_prompt = add == nullptr || *add->as_bool(),
                                                   .extra_json = extra.dump()});
        if (const schema::Json* const error = expected.find("error")) {
            const std::string& message = *error->as_string();
            EXPECT_EQ(actual ? *actual : actual.error(), message.empty() && !actual ? actual.error() : message);
        } else {
            EXPECT_EQ(actual ? *actual : "error: " + actual.error(), text(expected, "text"));
        }
    }
}

}  // namespace
}  // namespace lorry::engine
