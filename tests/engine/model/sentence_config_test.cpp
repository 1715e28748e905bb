// What sentence-transformers' files say, and what of them is refused by name.
#include "engine/model/sentence_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/support/temp_folder.h"
#include "tests/support/thrown.h"

namespace lorry::engine {
namespace {

using testing::HasSubstr;

// A folder with these modules, a pooling of this config, and a Dense module from 8 to 4.
struct SentenceFolder {
    explicit SentenceFolder(const std::vector<std::string>& modules, const std::string& pooling = R"({"pooling_mode_mean_tokens": true})") {
        std::string list;
        for (const std::string& module : modules) {
            const std::string path = module == "Transformer" ? "" : "1_" + module;
            list += std::string(list.empty() ? "" : ",") + R"({"type": "sentence_transformers.models.)" + module + R"(", "path": ")" +
                    path + R"("})";
            std::filesystem::create_directories(folder / path);
        }
        tests::write_text(folder / "modules.json", "[" + list + "]");
        std::filesystem::create_directories(folder / "1_Pooling");
        tests::write_text(folder / "1_Pooling/config.json", pooling);
        std::filesystem::create_directories(folder / "1_Dense");
        tests::write_text(folder / "1_Dense/config.json",
                          R"({"in_features": 8, "out_features": 4, "activation_function": "torch.nn.modules.activation.Tanh"})");
    }
    EmbedderConfig read(std::optional<PoolingMode> pooling = std::nullopt) const {
        ModelConfig config;
        config.hidden = 8;
        read_sentence_transformers(folder / "", pooling, config);
        return config.embedder.value_or(EmbedderConfig{});
    }
    std::string error() const {
        return tests::thrown_by([&] { read(); });
    }
    tests::TempFolder folder;
};

TEST(SentenceConfig, ReadsModulesAndPrompts) {
    const SentenceFolder folder({"Transformer", "Pooling", "Dense", "Normalize"});
    tests::write_text(folder.folder / "config_sentence_transformers.json",
                      R"({"prompts": {"query": "query: ", "passage": ""}, "default_prompt_name": "query"})");
    const EmbedderConfig read = folder.read();
    EXPECT_EQ(read.pooling, PoolingMode::mean);
    EXPECT_EQ(read.pooling_source, "1_Pooling/config.json");
    EXPECT_TRUE(read.normalized);
    EXPECT_EQ(read.dimensions, 4);
    ASSERT_EQ(read.dense.size(), 1U);
    EXPECT_EQ(read.dense.front().activation, kernels::ActivationKind::tanh);
    EXPECT_EQ(read.default_prompt, "query");
    EXPECT_EQ(read.prompts.size(), 2U);
    EXPECT_EQ(folder.read(PoolingMode::cls).pooling, PoolingMode::cls) << "--pooling comes first";
}

TEST(SentenceConfig, ReadsBothGenerationsOfPoolingConfigs) {
    const auto mode = [](const std::string& pooling) { return SentenceFolder({"Transformer", "Pooling"}, pooling).read().pooling; };
    EXPECT_EQ(mode(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})"), PoolingMode::cls);
    EXPECT_EQ(mode(R"({"pooling_mode_lasttoken": true})"), PoolingMode::last);
    EXPECT_EQ(mode(R"({"pooling_mode": "weightedmean"})"), PoolingMode::weighted_mean);
}

TEST(SentenceConfig, RefusesWhatWouldGiveOtherVectors) {
    EXPECT_THAT(SentenceFolder({"Transformer", "Pooling"}, R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})").error(),
                HasSubstr("2 pooling modes"));
    EXPECT_THAT(SentenceFolder({"Transformer", "Pooling"}, R"({"pooling_mode": "mean", "include_prompt": false})").error(),
                HasSubstr("include_prompt"));
    EXPECT_THAT(SentenceFolder({"Transformer", "Pooling", "Normalize", "Dense"}).error(), HasSubstr("the order is"));
    EXPECT_THAT(SentenceFolder({"Transformer", "Dense", "Pooling"}).error(), HasSubstr("the order is"));
    EXPECT_THAT(SentenceFolder({"Transformer", "Pooling", "Pooling"}).error(), HasSubstr("the order is"));
    EXPECT_THAT(SentenceFolder({"Transformer"}).error(), HasSubstr("no Pooling"));
    EXPECT_THAT(SentenceFolder({"Transformer", "CNN"}).error(), HasSubstr("CNN"));
    const SentenceFolder folder({"Transformer", "Pooling"});
    tests::write_text(folder.folder / "sentence_bert_config.json", R"({"max_seq_length": 64, "do_lower_case": true})");
    EXPECT_THAT(folder.error(), HasSubstr("do_lower_case"));
}

// A causal language model with these files of sentence-transformers; its score, or what is wrong.
std::string token_score(const std::string& score, const std::string& sentence = "{}", const std::string& bert = "{}",
                        bool generates = true) {
    const SentenceFolder folder({"Transformer", "LogitScore"});
    tests::write_text(folder.folder / "1_LogitScore/config.json", score);
    tests::write_text(folder.folder / "config_sentence_transformers.json", sentence);
    tests::write_text(folder.folder / "sentence_bert_config.json", bert);
    ModelConfig config;
    config.vocabulary = 100;
    config.generates = generates;
    try {
        read_sentence_transformers(folder.folder / "", std::nullopt, config);
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    const TokenScore& read = *config.token_score;
    return fmt::format("{}-{} '{}'{}{}", read.positive, read.negative.value_or(-1), read.instruction,
                       read.adds_generation_prompt ? " generation prompt" : "", config.labels->scores_are_logits ? " logits" : "");
}

TEST(SentenceConfig, ReadsWhichTokensScore) {
    EXPECT_EQ(token_score(R"({"true_token_id": 7, "false_token_id": 5, "module_input_name": "causal_logits"})"), "7-5 ''");
    EXPECT_EQ(token_score(
                  R"({"true_token_id": 7, "false_token_id": null})",
                  R"({"activation_fn": "torch.nn.modules.linear.Identity", "prompts": {"web": "Find it."}, "default_prompt_name": "web"})",
                  R"({"processing_kwargs": {"chat_template": {"add_generation_prompt": true, "restore_suffix": false}}})"),
              "7--1 'Find it.' generation prompt logits");
    EXPECT_THAT(token_score(R"({"true_token_id": 100, "false_token_id": 5})"), HasSubstr("true_token_id = 100 is not supported"));
    EXPECT_THAT(token_score(R"({"false_token_id": 5})"), HasSubstr("true_token_id is missing"));
    EXPECT_THAT(token_score(R"({"true_token_id": 7, "module_input_name": "scores"})"), HasSubstr("only causal_logits is supported"));
    EXPECT_THAT(token_score(R"({"true_token_id": 7})", R"({"activation_fn": "torch.nn.modules.activation.Tanh"})"),
                HasSubstr("activation_fn = \"torch.nn.modules.activation.Tanh\" is not supported"));
    EXPECT_THAT(token_score(R"({"true_token_id": 7})", "{}", R"({"processing_kwargs": {"chat_template": {"enable_thinking": true}}})"),
                HasSubstr("processing_kwargs.chat_template.enable_thinking = true is not supported"));
    EXPECT_THAT(token_score(R"({"true_token_id": 7})", "{}", "{}", false), HasSubstr("needs a model whose architectures name"));
    EXPECT_THAT(SentenceFolder({"Transformer", "Pooling", "LogitScore"}).error(), HasSubstr("LogitScore is supported after a Transformer"));
}

// As sentence-transformers 5 and later write it, where config.json has none.
TEST(SentenceConfig, ReadsTheActivationOfACrossEncoder) {
    const auto are_logits = [](const std::string& json) {
        const tests::TempFolder folder;
        tests::write_text(folder / "config_sentence_transformers.json", json);
        ModelConfig config;
        config.labels = std::make_shared<const Labels>(Labels{.names = {"LABEL_0"}});
        read_sentence_transformers(folder / "", std::nullopt, config);
        return config.labels->scores_are_logits;
    };
    EXPECT_TRUE(are_logits(R"({"activation_fn": "torch.nn.modules.linear.Identity"})"));
    EXPECT_FALSE(are_logits(R"({"activation_fn": "torch.nn.modules.activation.Sigmoid"})"));
    EXPECT_FALSE(are_logits("{}"));
}

}  // namespace
}  // namespace lorry::engine
