// Pairs as the prompts of models that answer "yes" or "no". The expected prompt is what transformers 5.23 rendered.
#include "consumer/pair_template.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consumer/preparer.h"
#include "schema/codec.h"
#include "tests/support/encoder_tokenizer.h"
#include "tests/support/temp_folder.h"

namespace lorry::consumer {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// That of docs/jobs.md.
constexpr const char* qwen3_reranker =
    "<|im_start|>system\n"
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "
    "\"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n"
    "<Instruct>: {{ messages | selectattr(\"role\", \"eq\", \"system\") | map(attribute=\"content\") | first "
    "| default(\"Given a web search query, retrieve relevant passages that answer the query\") }}\n"
    "<Query>: {{ messages | selectattr(\"role\", \"eq\", \"query\") | map(attribute=\"content\") | first }}\n"
    "<Document>: {{ messages | selectattr(\"role\", \"eq\", \"document\") | map(attribute=\"content\") | first }}<|im_end|>\n"
    "<|im_start|>assistant\n"
    "<think>\n\n</think>{{ '\\n\\n' }}";

std::optional<engine::ChatTemplate> template_of(const std::string& source) {
    const tests::TempFolder folder;
    tests::write_text(folder / "chat_template.jinja", source);
    return engine::ChatTemplate::load(folder / "");
}

std::string rendered(const std::string& source, const PairTexts& pair, const engine::TokenScore& score = {}) {
    const auto chat_template = template_of(source);
    const auto text = PairTemplate(chat_template, score).render(pair);
    return text ? *text : fmt::format("{}: {}", name_of(text.error().code), text.error().message);
}

TEST(PairTemplate, RendersThePromptOfQwen3Reranker) {
    EXPECT_EQ(rendered(qwen3_reranker, {.query = "What is <b>?", .document = "A\n b"}),
              "<|im_start|>system\n"
              "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can "
              "only be \"yes\" or \"no\".<|im_end|>\n"
              "<|im_start|>user\n"
              "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
              "<Query>: What is <b>?\n"
              "<Document>: A\n b<|im_end|>\n"
              "<|im_start|>assistant\n"
              "<think>\n\n</think>\n\n");
    EXPECT_THAT(rendered(qwen3_reranker, {.query = "q", .document = "d", .instruction = "Find it."}), HasSubstr("<Instruct>: Find it.\n"));
    engine::TokenScore score;
    score.instruction = "By default.";
    EXPECT_THAT(rendered(qwen3_reranker, {.query = "q", .document = "d"}, score), HasSubstr("<Instruct>: By default.\n"));
    EXPECT_THAT(rendered(qwen3_reranker, {.query = "q", .document = "d", .instruction = "Find it."}, score),
                HasSubstr("<Instruct>: Find it."));
}

TEST(PairTemplate, AsksForAGenerationPromptAsTheFolderSays) {
    const char* const source = "{{ messages[0].content }}/{{ messages[1].content }}{% if add_generation_prompt %}!{% endif %}";
    engine::TokenScore score;
    EXPECT_EQ(rendered(source, {.query = "q", .document = "d"}, score), "q/d");
    score.adds_generation_prompt = true;
    EXPECT_EQ(rendered(source, {.query = "q", .document = "d"}, score), "q/d!");
}

// Pins: an ordinary chat template leaves unknown roles out, and the score would be of no text.
TEST(PairTemplate, RefusesATemplateThatDoesNotShowThePair) {
    const char* const chat = "{% for m in messages %}{% if m.role == 'user' or m.role == 'query' %}{{ m.content }}{% endif %}{% endfor %}";
    EXPECT_THAT(rendered(chat, {.query = "q", .document = "d"}), StartsWith("no_chat_template: this model's chat template cannot show a "
                                                                            "pair of texts: it does not show the document; its"));
    EXPECT_THAT(rendered("{{ raise_exception('no') }}", {.query = "q", .document = "d"}), HasSubstr("it fails: no"));
    const std::optional<engine::ChatTemplate> none;
    EXPECT_THAT(PairTemplate(none, {}).render({.query = "q", .document = "d"}).error().message, HasSubstr("there is none"));
    const char* const plain = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}";
    EXPECT_EQ(rendered(plain, {.query = "q", .document = "d"}), "qd");
    EXPECT_THAT(rendered(plain, {.query = "q", .document = "d", .instruction = "i"}), StartsWith("unsupported_field: field 'instruction'"));
}

std::string prepared(const std::string& url, const std::string& members, bool scores = true) {
    const engine::Tokenizer& tokenizer = tests::encoder_tokenizer("bert_uncased");
    engine::ModelConfig config{.vocabulary = static_cast<std::int64_t>(tokenizer.vocabulary_size())};
    config.labels = std::make_shared<const engine::Labels>(engine::Labels{.names = {"LABEL_0"}});
    if (scores) config.token_score = engine::TokenScore{};
    const std::string line = fmt::format(R"({{"custom_id":"a","url":"{}","body":{{"model":"base",{}}}}})", url, members);
    auto job = schema::parse_job({.source = {}, .key = {}, .value = line, .headers = {}, .timestamp = {}}, {});
    const Preparer preparer(tokenizer, template_of("{{ messages[0].content }} in {{ messages[1].content }}"), config, {.context_max = 20});
    const auto made = preparer.prepare(std::move(*job), {.kind = ModelName::Kind::base});
    if (!made) return fmt::format("{} {}: {}", name_of(made.error().error.code), made.error().error.param, made.error().error.message);
    std::string text;
    for (const engine::Request& request : made->requests) text += tokenizer.decode(request.prompt, false) + "|";
    return text;
}

TEST(PairTemplate, MakesThePromptsOfPairs) {
    EXPECT_EQ(prepared("/rerank", R"("query":"a","documents":["b","c"])"), "a in b|a in c|");
    EXPECT_EQ(prepared("/score", R"("text_1":["a","b"],"text_2":["c","d"])"), "a in c|b in d|");
    EXPECT_THAT(
        prepared("/rerank", R"("query":"a","documents":["b"],"truncate_prompt_tokens":5)"),
        StartsWith("unsupported_field truncate_prompt_tokens: field 'truncate_prompt_tokens' is not supported where a model reads pairs"));
    EXPECT_THAT(prepared("/rerank", R"("query":"a","documents":["b"],"instruction":"c")", false),
                StartsWith("unsupported_field instruction: field 'instruction' is not supported where a model compares texts without"));
    EXPECT_THAT(prepared("/rerank", R"("query":"a a a a a a a a a a a a a a a a a a","documents":["b b"])"),
                StartsWith("context_length_exceeded documents: this model takes 20 tokens; field 'documents' has 21: shorten it"));
    // Pins: a text without a question had a class, the chance of "yes" after it.
    EXPECT_EQ(prepared("/classify", R"("input":"a")"),
              "missing_field choices: field 'choices' is missing; list the labels to choose from, or name a model or an adapter with a "
              "classification head");
    EXPECT_EQ(prepared("/embeddings", R"("input":"a")"),
              "unsupported_by_model model: this model cannot make embeddings; it generates text (/v1/chat/completions, /v1/completions, "
              "/classify with 'choices') and scores pairs of texts (/score, /rerank)");
}

}  // namespace
}  // namespace lorry::consumer
