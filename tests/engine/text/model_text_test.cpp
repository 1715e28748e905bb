// The tokenizer and the chat template of an adapter's folder, compared with the base's: what transformers saves beside adapters, and each
// difference that counts.
#include "engine/text/model_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tests/engine/text/vectors.h"

namespace lorry::engine {
namespace {

using schema::Json;
using testing::HasSubstr;

const std::filesystem::path saved = text_vectors::folder_of("adapter_texts");

// The base of the adapters in tests/data/text/adapter_texts, and an adapter's folder to write into.
class ModelTextsTest : public testing::Test {
protected:
    ModelTextsTest() {
        for (const char* name : {"tokenizer_config.json", "chat_template.jinja"})
            std::filesystem::copy_file(saved / "base" / name, base.path() / name);
        std::filesystem::copy_file(text_vectors::folder_of("qwen2") / "tokenizer.json", base.path() / "tokenizer.json");
    }
    // tokenizer.json of the adapter's folder: the base's with a change.
    void write_tokenizer(const std::function<void(Json&)>& change) const {
        Json json = text_vectors::read_json(base.path() / "tokenizer.json");
        change(json);
        adapter.write("tokenizer.json", json.dump());
    }
    // "same", the difference, or "error: " and why.
    std::string found() const { return found(adapter.path()); }
    std::string found(const std::filesystem::path& folder) const {
        const auto text = texts.of(folder);
        if (!text) return "error: " + text.error();
        return *text == nullptr ? "same" : (*text)->difference;
    }

    text_vectors::ModelFolder base;
    text_vectors::ModelFolder adapter;
    const ModelTexts texts{base.path()};
};

// Pins: almost every training script saves the base's tokenizer beside its adapter, with its own padding, truncation and length.
TEST_F(ModelTextsTest, FilesThatSayWhatTheBaseSaysAreTheBase) {
    EXPECT_EQ(found(), "same") << "an empty folder";
    EXPECT_EQ(found(saved / "trained"), "same");
    EXPECT_EQ(found(base.path()), "same");
    write_tokenizer([](Json&) {});
    EXPECT_EQ(found(), "same") << "written another way";
    adapter.write("tokenizer_config.json", R"({"model_max_length":7,"padding_side":"left","pad_token":"<|im_end|>","eos_token":null})");
    EXPECT_EQ(found(), "same");
    adapter.write("tokenizer_config.json",
                  R"({"chat_template":"{% for message in messages %}{{ message['content'] }}{{ eos_token }}{% endfor %}\n",)"
                  R"("eos_token":{"content":"<|endoftext|>"},"added_tokens_decoder":{"480":{"content":"<|endoftext|>","special":true}}})");
    EXPECT_EQ(found(), "same");
    adapter.write("added_tokens.json", R"({"<|endoftext|>":480})");
    EXPECT_EQ(found(), "same");
    write_tokenizer([](Json& json) { json.set("post_processor", Json()); });
    EXPECT_EQ(found(), "same") << "the base's adds no tokens either";
    // As transformers 5 writes Qwen's and Cohere's again.
    write_tokenizer([](Json& json) {
        std::string text = json.dump();
        const std::string trims = R"("trim_offsets":true,"use_regex":false)";
        text.replace(text.find(trims), trims.size(), R"("trim_offsets":false,"use_regex":false)");
        json = Json::parse(text).value();
        json.set("decoder", Json::parse(R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false})").value());
        Json model = *json.find("model");
        for (const char* part : {"continuing_subword_prefix", "end_of_word_suffix"}) model.set(part, "");
        json.set("model", std::move(model));
    });
    EXPECT_EQ(found(), "same");
}

TEST_F(ModelTextsTest, OwnTextsDoWhatTransformersDoes) {
    const Json vectors = text_vectors::read_json(saved / "vectors.json");
    std::size_t compared = 0;
    for (const auto& [name, expected] : *vectors.as_object()) {
        if (name == "trained") continue;
        const auto own = texts.of(saved / name);
        ASSERT_TRUE(own && *own != nullptr) << name;
        const ModelText& text = **own;
        for (const Json& each : text_vectors::list(expected, "texts")) {
            const auto ids = text_vectors::ids(each, "ids");
            EXPECT_EQ(text.tokenizer.encode(text_vectors::text(each, "text"), true).value(), ids) << name;
            EXPECT_EQ(text.tokenizer.decode(ids, false), text_vectors::text(each, "decoded")) << name;
            EXPECT_EQ(text.tokenizer.decode(ids, true), text_vectors::text(each, "skipped")) << name;
            ++compared;
        }
        for (const Json& each : text_vectors::list(expected, "chats")) {
            const auto rendered = text.chat_template->render({.messages_json = text_vectors::member(each, "messages").dump()});
            EXPECT_EQ(rendered.value(), text_vectors::text(each, "text")) << name;
            EXPECT_EQ(text.tokenizer.encode(*rendered, false).value(), text_vectors::ids(each, "ids")) << name;
            ++compared;
        }
        EXPECT_EQ(text.tokenizer.end_tokens({}, 1000).front(), *text_vectors::member(expected, "eos").as_integer()) << name;
    }
    EXPECT_EQ(compared, 3U * (11 + 2));
}

TEST_F(ModelTextsTest, TheFirstDifferenceIsNamed) {
    EXPECT_EQ(found(saved / "tokens"), R"(tokenizer.json: it has the token "<tool>" with the id 485, and the base has none with it)");
    EXPECT_EQ(found(saved / "template"), "chat_template.jinja: its chat template is not the base's");
    EXPECT_EQ(found(saved / "end"), R"(tokenizer.json: its eos_token is "<|im_end|>", which is not the base's)");
    const auto of_token = [&](const char* member, Json value) {
        write_tokenizer([&](Json& json) {
            Json tokens = *json.find("added_tokens");
            Json::Array list = *tokens.as_array();
            list[2].set(member, std::move(value));
            json.set("added_tokens", Json(std::move(list)));
        });
        return found();
    };
    EXPECT_EQ(of_token("content", "<|other|>"),
              R"(tokenizer.json: its token with the id 482 is "<|other|>", and the base's is "<|im_end|>")");
    EXPECT_EQ(of_token("special", false), R"(tokenizer.json: "<|im_end|>" (id 482) is not special in it, unlike in the base)");
    EXPECT_THAT(of_token("lstrip", true), HasSubstr(R"(it finds "<|im_end|>" (id 482) by other rules)"));
    const auto without = [&](const char* part) {
        write_tokenizer([&](Json& json) { json.set(part, Json()); });
        return found();
    };
    EXPECT_EQ(without("normalizer"), "tokenizer.json: its normalizer is another one");
    EXPECT_EQ(without("pre_tokenizer"), "tokenizer.json: its pre_tokenizer is another one");
    EXPECT_EQ(without("decoder"), "tokenizer.json: its decoder is another one");
    write_tokenizer([](Json& json) {
        Json model = *json.find("model");
        model.set("merges", Json::array({}));
        json.set("model", std::move(model));
    });
    EXPECT_EQ(found(), "tokenizer.json: its model has another merges");
    write_tokenizer([](Json& json) {
        json.set("post_processor",
                 *Json::parse(R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"e","type_id":0}},{"Sequence":{"id":"A",)"
                              R"("type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],)"
                              R"("special_tokens":{"e":{"id":"e","ids":[480],"tokens":["e"]}}})"));
    });
    EXPECT_EQ(found(), "tokenizer.json: its post_processor adds other tokens to texts");
}

TEST_F(ModelTextsTest, ConfigurationsAloneCount) {
    adapter.write("special_tokens_map.json", R"({"eos_token":"<|im_end|>"})");
    EXPECT_EQ(found(), R"(special_tokens_map.json: its eos_token is "<|im_end|>", which is not the base's)");
    adapter.write("tokenizer_config.json", R"({"eos_token":"<|endoftext|>","bos_token":"<|im_end|>","add_bos_token":true})");
    adapter.write("special_tokens_map.json", "{}");
    EXPECT_THAT(found(), HasSubstr("error: tokenizer_config.json: add_bos_token = true contradicts the post_processor"));
    std::filesystem::copy_file(saved / "tokens" / "tokenizer.json", adapter.path() / "tokenizer.json");
    EXPECT_THAT(found(), HasSubstr("add_bos_token = true contradicts")) << "there are other differences, too";
    std::filesystem::remove(adapter.path() / "tokenizer.json");
    adapter.write("tokenizer_config.json", R"({"eos_token":"<|endoftext|>","bos_token":"<|im_end|>","add_bos_token":false})");
    EXPECT_EQ(found(), "same");
    adapter.write("tokenizer_config.json", R"({"eos_token":"<|endoftext|>","chat_template":"{{ messages }}"})");
    EXPECT_EQ(found(), "tokenizer_config.json: its chat template is not the base's");
    adapter.write("tokenizer_config.json", R"({"eos_token":"<|endoftext|>","added_tokens_decoder":{"485":{"content":"<x>"}}})");
    EXPECT_EQ(found(), R"(tokenizer_config.json: it has the token "<x>" with the id 485, and the base has none with it)");
}

// Pins: a folder with added_tokens.json and no tokenizer.json would be tokenized as the base is.
TEST_F(ModelTextsTest, FilesThatCannotBeUsedAreErrors) {
    adapter.write("added_tokens.json", R"({"<new>":485})");
    EXPECT_THAT(found(), HasSubstr("added_tokens.json: the tokenizer does not have the token \"<new>\" with that id"));
    adapter.write("added_tokens.json", "{}");
    adapter.write("chat_template.jinja", "{% for %}");
    EXPECT_THAT(found(), HasSubstr((adapter.path() / "chat_template.jinja").string() + " cannot be used"));
    adapter.write("chat_template.jinja", "");
    adapter.write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\n");
    EXPECT_THAT(found(), HasSubstr("git lfs pull"));
}

TEST_F(ModelTextsTest, OlderVocabulariesCountIfTheyAreNotTheBases) {
    base.write("vocab.json", R"({"a":0})");
    adapter.write("vocab.json", R"({"a":0})");
    adapter.write("tokenizer_config.json", R"({"eos_token":"<|endoftext|>"})");
    EXPECT_EQ(found(), "same") << "the base's tokenizer.json counts";
    adapter.write("vocab.json", R"({"a":0,"b":1})");
    EXPECT_THAT(found(), HasSubstr("error: ")) << "there is no class that reads it";
}

TEST_F(ModelTextsTest, EqualFilesShareOneText) {
    const text_vectors::ModelFolder other;
    adapter.write("chat_template.jinja", "{{ messages }}");
    other.write("chat_template.jinja", "{{ messages }}");
    const auto first = texts.of(adapter.path()).value();
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(first, texts.of(other.path()).value());
    other.write("chat_template.jinja", "{{ messages }}!");
    EXPECT_NE(first->hash, texts.of(other.path()).value()->hash);
    // Many later texts do not end one that is used.
    std::set<std::string> hashes;
    for (int i = 0; i < 20; ++i) {
        other.write("chat_template.jinja", "{{ messages }}" + std::to_string(i));
        hashes.insert(texts.of(other.path()).value()->hash);
    }
    EXPECT_EQ(hashes.size(), 20U);
    EXPECT_EQ(first->chat_template->source(), "{{ messages }}\n");
    EXPECT_EQ(first->hash, texts.of(adapter.path()).value()->hash);
}

}  // namespace
}  // namespace lorry::engine
