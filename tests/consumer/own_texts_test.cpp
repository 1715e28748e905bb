// Jobs of adapters with a tokenizer and a chat template of their own, from the job to its requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "consumer/preparer.h"
#include "engine/model/adapter.h"
#include "schema/codec.h"
#include "tests/support/temp_folder.h"

namespace lorry::consumer {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

const std::filesystem::path texts_data = std::filesystem::path(LORRY_SOURCE_DIR) / "tests/data/text";

class OwnTextsTest : public testing::Test {
protected:
    OwnTextsTest() {
        std::filesystem::copy(texts_data / "adapter_texts" / "base", base.path());
        std::filesystem::copy_file(texts_data / "qwen2" / "tokenizer.json", base / "tokenizer.json");
        config.vocabulary = 600;
    }
    // The jobs' model: an adapter with this folder, whose text has this hash if it is not as the folder says.
    ModelName adapter(const std::filesystem::path& folder, const std::string& text_hash = "") const {
        return {.kind = ModelName::Kind::adapter,
                .hash = "content of " + folder.filename().string(),
                .folder = folder,
                .text_hash = text_hash.empty() ? texts.of(folder).value()->hash : text_hash};
    }
    static schema::Job job(const std::string& members, const std::string& url = "completions") {
        auto parsed =
            schema::parse_job({.value = R"({"custom_id":"a","url":"/v1/)" + url + R"(","body":{"model":"a",)" + members + "}}"}, {});
        CHECK(parsed.has_value(), "the test's job is good");
        return std::move(*parsed);
    }
    static PreparedJob prepared(const Preparer& preparer, schema::Job job, ModelName model) {
        auto prepared = preparer.prepare(std::move(job), std::move(model));
        CHECK(prepared.has_value(), prepared.error().error.message);
        return std::move(*prepared);
    }
    Preparer preparer() const {
        return {texts.base().tokenizer, texts.base().chat_template, config, {.context_max = 200, .texts = &texts}};
    }

    tests::TempFolder base;
    engine::ModelTexts texts{base.path()};
    engine::ModelConfig config;
};

TEST_F(OwnTextsTest, AnAdaptersTokensTemplateAndEndAreUsedForItsJobsAlone) {
    const Preparer prepares = preparer();
    const ModelName own = adapter(texts_data / "adapter_texts" / "tokens");
    const engine::Tokenizer& tokenizer = texts.of(own.folder).value()->tokenizer;
    const engine::TokenId tool = tokenizer.find("<tool>").value();
    const engine::TokenId done = tokenizer.find("<|done|>").value();

    const std::string members = R"("prompt":"<tool>","bad_words":["</tool> a"],"structured_outputs":{"regex":"a*"})";
    const PreparedJob of_own = prepared(prepares, job(members), own);
    const engine::Request& request = of_own.requests.front();
    EXPECT_THAT(request.prompt, testing::ElementsAre(tool));
    EXPECT_EQ(request.drawing->bad_words.front().front(), tokenizer.find("</tool>"));
    EXPECT_EQ(request.drawing->tokenizer.get(), &tokenizer);
    EXPECT_EQ(&of_own.plan.text->tokenizer, &tokenizer);
    EXPECT_THAT(request.drawing->end_tokens, Contains(done));
    EXPECT_EQ(request.adapter->hash, own.hash);
    const PreparedJob chat = prepared(prepares, job(R"("messages":[{"role":"user","content":"hello"}])", "chat/completions"), own);
    EXPECT_EQ(prepares.prompt_text(chat.plan).value(), "<|turn|>user\nhello<|done|>\n<|turn|>assistant\n");

    const PreparedJob of_base = prepared(prepares, job(members), {.kind = ModelName::Kind::base});
    EXPECT_THAT(of_base.requests.front().prompt, Not(Contains(tool)));
    EXPECT_EQ(of_base.requests.front().drawing->tokenizer, nullptr);
    EXPECT_THAT(of_base.requests.front().drawing->end_tokens, Not(Contains(done)));
    EXPECT_NE(of_base.requests.front().drawing->grammar, request.drawing->grammar);
    EXPECT_EQ(prepares.grammar_stats().kept, 2U) << "of both in one budget";
    EXPECT_EQ(of_base.plan.text, nullptr);
}

// Pins: scripts add a token to pad with, and the model has no row for it.
TEST_F(OwnTextsTest, TokensBeyondTheModelsRowsAreRefusedWhereTheyAreUsed) {
    config.vocabulary = 485;
    const Preparer prepares = preparer();
    const ModelName own = adapter(texts_data / "adapter_texts" / "tokens");
    EXPECT_TRUE(prepares.prepare(job(R"("prompt":"hello")"), own).has_value());
    const auto refused = prepares.prepare(job(R"("prompt":"hello <tool>")"), own);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().error.message, HasSubstr("485"));
}

// Pins: tokens were added and the model was resized for them.
TEST_F(OwnTextsTest, AnAdapterWithMoreTokensTakesThemAndTheBaseDoesNot) {
    config.vocabulary = 485;
    const Preparer prepares = preparer();
    ModelName own = adapter(texts_data / "adapter_texts" / "tokens");
    const engine::TokenId tool = texts.of(own.folder).value()->tokenizer.find("<tool>").value();
    ASSERT_GE(tool, config.vocabulary);
    own.vocabulary = 500;
    const std::string members = R"("prompt":"hello <tool>","allowed_token_ids":[499],"logit_bias":{"498":1},"stop_token_ids":[497])";
    const PreparedJob job_of_own = prepared(prepares, job(members), own);
    const engine::Request& request = job_of_own.requests.front();
    EXPECT_THAT(request.prompt, Contains(tool));
    EXPECT_EQ(request.adapter->vocabulary, 500);
    EXPECT_EQ(request.drawing->allowed.size(), (500U + 31U) / 32U);
    EXPECT_EQ(request.drawing->allowed[499 / 32], 1U << (499 % 32));
    EXPECT_EQ(prepared(prepares, job(R"("prompt":[499])"), own).requests.front().prompt.front(), 499);

    const auto error_of = [&](const std::string& text, const ModelName& model) {
        const auto refused = prepares.prepare(job(text), model);
        return refused ? std::string("none") : refused.error().error.message;
    };
    EXPECT_THAT(error_of(R"("prompt":[500])", own), HasSubstr("token id 500 is not in the vocabulary of 500 tokens"));
    EXPECT_THAT(error_of(R"("prompt":[485])", {.kind = ModelName::Kind::base}), HasSubstr("not in the vocabulary of 485 tokens"));
    ModelName unchanged = adapter(texts_data / "adapter_texts" / "tokens");  // the same text without rows for it
    EXPECT_THAT(error_of(R"("prompt":"hello <tool>")", unchanged), HasSubstr("not in the vocabulary of 485 tokens"));
    own.vocabulary = 485 + engine::added_tokens_max + 1;
    EXPECT_THAT(error_of(R"("prompt":"hello")", own), HasSubstr("was registered with 66022 tokens"));
}

// Pins: a model was resized to its tokenizer, which has fewer tokens than the base has rows.
TEST_F(OwnTextsTest, AnAdapterWithFewerTokensUsesTheBasesTextWithinThem) {
    const Preparer prepares = preparer();
    ModelName cut{.kind = ModelName::Kind::adapter, .hash = "cut", .folder = base.path(), .vocabulary = 484};
    const PreparedJob prepared_job =
        prepared(prepares, job(R"("prompt":"hello","bad_words":["a"],"structured_outputs":{"regex":"a*"})"), cut);
    EXPECT_EQ(prepared_job.plan.text, nullptr);
    EXPECT_EQ(prepared_job.requests.front().drawing->allowed.size(), (484U + 31U) / 32U);
    EXPECT_EQ(prepared_job.requests.front().drawing->tokenizer, nullptr);
    const PreparedJob of_base =
        prepared(prepares, job(R"("prompt":"hello","structured_outputs":{"regex":"a*"})"), {.kind = ModelName::Kind::base});
    EXPECT_NE(prepared_job.requests.front().drawing->grammar, of_base.requests.front().drawing->grammar);
    const auto refused = prepares.prepare(job(R"("prompt":[484])"), cut);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().error.message, HasSubstr("token id 484 is not in the vocabulary of 484 tokens"));
}

TEST_F(OwnTextsTest, ATextThatIsNotTheRegisteredOneIsRefused) {
    const Preparer prepares = preparer();
    const auto error_of = [&](const ModelName& model) {
        const auto refused = prepares.prepare(job(R"("prompt":"hello")"), model);
        CHECK(!refused.has_value(), "the text is another one");
        EXPECT_EQ(refused.error().error.code, schema::ErrorCode::adapter_failed);
        return refused.error().error.message;
    };
    EXPECT_THAT(error_of(adapter(texts_data / "adapter_texts" / "tokens", "0af3")), HasSubstr("register it again"));
    EXPECT_THAT(error_of(adapter(texts_data / "adapter_texts" / "trained", "0af3")), HasSubstr("register it again")) << "it is the base's";
    const tests::TempFolder torn;
    tests::write_text(torn / "tokenizer.json", "{");
    EXPECT_THAT(error_of(adapter(torn.path(), "0af3")), HasSubstr("tokenizer.json cannot be used"));
}

// Pins: a job keeps its text while those of many other adapters come and go.
TEST_F(OwnTextsTest, AJobKeepsItsTextUntilItEnds) {
    const Preparer prepares = preparer();
    const tests::TempFolder folder;
    std::vector<TokenizedJob> tokenized;
    for (int i = 0; i < 30; ++i) {
        tests::write_text(folder / "chat_template.jinja", "turn " + std::to_string(i) + ": {{ messages[0].content }}");
        tokenized.push_back(
            prepares.tokenize(job(R"("messages":[{"role":"user","content":"hello"}])", "chat/completions"), adapter(folder.path()))
                .value());
    }
    for (int i = 0; i < 30; ++i) {
        const auto prepared = prepares.expand(std::move(tokenized[static_cast<std::size_t>(i)]), false);
        const engine::Request& request = prepared.requests.front();
        EXPECT_EQ(request.drawing->tokenizer->decode(request.prompt, false), "turn " + std::to_string(i) + ": hello");
    }
}

}  // namespace
}  // namespace lorry::consumer
