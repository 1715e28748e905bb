// What config.json of each younger family means: defaults, keys of both generations, and parts of multimodal configs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <fmt/format.h>

#include "engine/model/model_config.h"
#include "tests/support/labels.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown.h"

namespace lorry {
namespace {

// No other thread takes part.
const tests::Labelled families_configs_without_tsan{"*", {tests::Label::not_tsan}};

using engine::ModelConfig;
using engine::RopeConfig;
using testing::ElementsAre;

ModelConfig parse_family(const std::string& family, const std::string& members = "") {
    const std::string sizes = R"("hidden_size":64,"num_attention_heads":16,"num_key_value_heads":2,"num_hidden_layers":4,)"
                              R"("vocab_size":100,"intermediate_size":96)";
    const std::string text = R"({"model_type":")" + family + "\"," + sizes + (members.empty() ? "" : "," + members) + "}";
    return ModelConfig::parse(text, "", "config.json");
}

// As files of a release have it: what equals the default is left out.
constexpr const char* gemma3_of_the_hub = R"({
  "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
  "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02, "mm_tokens_per_image": 256, "model_type": "gemma3",
  "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
                  "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
  "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
  "vision_config": {"hidden_size": 1152, "image_size": 896, "model_type": "siglip_vision_model", "num_hidden_layers": 27}})";

TEST(FamilyConfig, TheTextPartOfAMultimodalConfigIsReadAndTheOtherPartsAreNamed) {
    const ModelConfig config = ModelConfig::parse(gemma3_of_the_hub, "", "config.json");
    EXPECT_THAT(config.skipped_parts, ElementsAre("vision_config"));
    EXPECT_EQ(config.heads, 8);
    EXPECT_EQ(config.kv_heads, 4);
    EXPECT_EQ(config.head_dim, 256);
    EXPECT_EQ(config.vocabulary, 262208);
    EXPECT_EQ(config.max_positions, 131072) << "which includes the factor";
    EXPECT_EQ(config.storage, kernels::Format::bfloat16);
    EXPECT_THAT(config.eos_ids, ElementsAre(1, 106));
    EXPECT_TRUE(config.generates && config.tied_head);
    EXPECT_EQ(config.windows[4], 1024);
    EXPECT_EQ(config.windows[5], std::nullopt);
    EXPECT_EQ(config.rope.kind, RopeConfig::Kind::linear);
    EXPECT_EQ(config.rope.theta, 1e6);
    EXPECT_EQ(config.rope.factor, 8.0);
    ASSERT_TRUE(config.window_rope);
    EXPECT_EQ(config.window_rope->kind, RopeConfig::Kind::standard);
    EXPECT_EQ(config.window_rope->theta, 1e4);
    EXPECT_EQ(config.attention_cap, std::nullopt);
    EXPECT_EQ(config.logit_cap, std::nullopt);
}

// The config of the hub with members before the first key: at the top level, and under text_config.
ModelConfig gemma3_with(const std::string& at_top, const std::string& inside) {
    std::string config = gemma3_of_the_hub;
    if (!inside.empty()) config.insert(config.find("\"hidden_size\": 2560"), inside + ",");
    if (!at_top.empty()) config.insert(config.find("\"architectures\""), at_top + ",");
    return ModelConfig::parse(config, "", "config.json");
}

// Pins: keys of the text model at the top level counted where text_config lacks them. transformers takes the defaults.
TEST(FamilyConfig, OnlyKeysOfTheWholeCheckpointCountBesideTheTextPart) {
    const ModelConfig config =
        gemma3_with(R"("query_pre_attn_scalar":1,"rms_norm_eps":0.1,"head_dim":64,"num_key_value_heads":8,"sliding_window_pattern":2)", "");
    EXPECT_EQ(config.attention_scale, 1.0 / 16.0);
    EXPECT_EQ(config.norm_epsilon, 1e-6);
    EXPECT_EQ(config.head_dim, 256);
    EXPECT_EQ(config.kv_heads, 4);
    EXPECT_EQ(config.windows[1], 1024);
    EXPECT_FALSE(gemma3_with(R"("tie_word_embeddings":false)", R"("tie_word_embeddings":true)").tied_head);
    EXPECT_TRUE(gemma3_with("", R"("tie_word_embeddings":false)").tied_head) << "the default of the top level";
}

// Pins: the dtype and the end tokens under text_config came before those of the top level.
TEST(FamilyConfig, TheTopLevelsDtypeAndEndTokensComeBeforeThoseOfTheTextPart) {
    EXPECT_EQ(gemma3_with("", R"("dtype":"float32")").storage, kernels::Format::bfloat16) << "whose name is torch_dtype";
    EXPECT_EQ(gemma3_with(R"("dtype":"float16")", R"("torch_dtype":"float32")").storage, kernels::Format::float16);
    EXPECT_THAT(gemma3_with("", R"("eos_token_id":7)").eos_ids, ElementsAre(1, 106));
    const std::string text = R"({"hidden_size":64,"num_attention_heads":4,"num_hidden_layers":2,"intermediate_size":96,)"
                             R"("dtype":"bfloat16","eos_token_id":7})";
    const ModelConfig inner = ModelConfig::parse(R"({"model_type":"gemma3","dtype":null,"text_config":)" + text + "}", "", "config.json");
    EXPECT_EQ(inner.storage, kernels::Format::bfloat16);
    EXPECT_THAT(inner.eos_ids, ElementsAre(7));
}

// Pins: rope_scaling was not read where rope_parameters is, though transformers adds it to the rope of layers without a window; and it
// counted under its older name of the kind, which transformers overrides.
TEST(FamilyConfig, Gemma3sScaledRopeHasOnePlaceAndOneName) {
    const auto error = [](const std::string& members) { return tests::thrown_by([&] { parse_family("gemma3_text", members); }); };
    const std::string scaling = R"("rope_scaling":{"rope_type":"linear","factor":8})";
    EXPECT_EQ(error(scaling + R"(,"rope_parameters":null)"), "accepted");
    EXPECT_THAT(error(scaling + R"(,"rope_parameters":{"full_attention":{"rope_type":"default"}})"),
                testing::HasSubstr(R"(rope_scaling = {"rope_type":"linear","factor":8} is not supported: rope_parameters is there, too)"));
    EXPECT_THAT(error(R"("rope_scaling":{"type":"linear","factor":8})"), testing::HasSubstr("rope_scaling.type = \"linear\" is not"));
}

// Pins: Gemma 3 had the caps of Gemma 2 where its config names them. transformers caps the logits of its text models alone.
TEST(FamilyConfig, Gemma3CapsTheLogitsOfTextModelsAlone) {
    const std::string caps = R"("attn_logit_softcapping":50.0,"final_logit_softcapping":30.0)";
    EXPECT_EQ(parse_family("gemma3_text", caps).attention_cap, std::nullopt);
    EXPECT_EQ(parse_family("gemma3_text", caps).logit_cap, 30.0);
    EXPECT_EQ(gemma3_with("", caps).attention_cap, std::nullopt);
    EXPECT_EQ(gemma3_with("", caps).logit_cap, std::nullopt);
}

// Pins: Gemma 2 and GPT-OSS followed a key that only Gemma 3 and Command-R7B have.
TEST(FamilyConfig, ThePatternOfWindowsIsAKeyOfSomeFamiliesAlone) {
    const std::string members = R"("sliding_window":9,"sliding_window_pattern":3,)"
                                R"("rope_scaling":{"rope_type":"yarn","factor":2,"original_max_position_embeddings":64})";
    for (const char* family : {"gemma2", "gpt_oss"})
        EXPECT_THAT(parse_family(family, members).windows, ElementsAre(9, std::nullopt, 9, std::nullopt)) << family;
    for (const char* family : {"gemma3_text", "cohere2"}) {
        const ModelConfig config = parse_family(family, R"("sliding_window":9,"sliding_window_pattern":3)");
        EXPECT_THAT(config.windows, ElementsAre(9, 9, std::nullopt, 9)) << family;
    }
}

TEST(FamilyConfig, AMultimodalConfigMayHaveItsCodesBesideTheTextPartOrInIt) {
    const std::string gptq = R"({"quant_method":"gptq","bits":4,"group_size":128,"sym":true})";
    const auto member = [](const std::string& quantization) { return R"("quantization_config":)" + quantization; };
    EXPECT_EQ(gemma3_with(member(gptq), "").quantized.value().name, "GPTQ, 4 bits, groups of 128");
    EXPECT_EQ(gemma3_with("", member(gptq)).quantized.value().name, "GPTQ, 4 bits, groups of 128");
    const std::string nf4 = R"({"quant_method":"bitsandbytes","load_in_4bit":true,"bnb_4bit_quant_type":"nf4",)"
                            R"("llm_int8_skip_modules":["vision_tower","multi_modal_projector"]})";
    EXPECT_EQ(gemma3_with(member(nf4), "").quantized.value().name, "bitsandbytes, nf4");
    EXPECT_THROW(gemma3_with("", member(R"({"quant_method":"gptq","bits":3})")), std::runtime_error);
}

// Pins: transformers holds the scale in the dtype of the weights, so that 55.4256 is 55.5 in bfloat16.
TEST(FamilyConfig, GemmasEmbeddingScaleIsRoundedToTheCheckpointsDtype) {
    const auto scale = [](const char* dtype) {
        return parse_family("gemma", fmt::format(R"("hidden_size":3072,"head_dim":256,"torch_dtype":"{}")", dtype)).embedding_scale;
    };
    EXPECT_EQ(scale("bfloat16"), 55.5);
    EXPECT_EQ(scale("float16"), 55.4375);
    EXPECT_EQ(static_cast<float>(scale("float32")), std::sqrt(3072.0F));
}

TEST(FamilyConfig, GemmaHasItsOwnDefaults) {
    const ModelConfig gemma = parse_family("gemma", R"("hidden_act":"gelu")");
    EXPECT_EQ(gemma.activation, kernels::ActivationKind::gelu_tanh) << "the first releases say gelu and mean the other";
    // Pins: each name of the exact function meant the other.
    EXPECT_EQ(parse_family("gemma", R"("hidden_act":"gelu_python")").activation, kernels::ActivationKind::gelu);
    EXPECT_EQ(gemma.head_dim, 256);
    EXPECT_TRUE(gemma.norm_offset && gemma.tied_head);
    const ModelConfig gemma2 = parse_family("gemma2", R"("sliding_window":9,"final_logit_softcapping":null)");
    EXPECT_EQ(gemma2.attention_cap, 50.0);
    EXPECT_EQ(gemma2.logit_cap, std::nullopt);
    EXPECT_EQ(gemma2.attention_scale, 1.0 / 16.0);
    EXPECT_THAT(gemma2.windows, ElementsAre(9, std::nullopt, 9, std::nullopt));
}

TEST(FamilyConfig, PhisLongRopeHasThreeNamesAndRotatesAPartOfAHead) {
    const std::string factors = R"("short_factor":[1,1],"long_factor":[2,3])";
    const std::string sizes = R"("head_dim":8,"partial_rotary_factor":0.5,"max_position_embeddings":4096)";
    for (const char* name : {"longrope", "su", "yarn"}) {
        const ModelConfig config = parse_family(
            "phi3", sizes + fmt::format(R"(,"original_max_position_embeddings":1024,"rope_scaling":{{"type":"{}",{}}})", name, factors));
        EXPECT_EQ(config.rope.kind, RopeConfig::Kind::longrope);
        EXPECT_EQ(config.rotated(), 4);
        EXPECT_TRUE(config.reorders_heads());
        EXPECT_EQ(config.rope.original_max_positions, 1024);
        EXPECT_EQ(config.rope.factor, 4.0) << "the ratio of the two contexts";
        EXPECT_EQ(config.max_positions, 4096);
        EXPECT_THAT(config.rope.long_factors, ElementsAre(2.0, 3.0));
    }
    const ModelConfig newer =
        parse_family("phi3", R"("head_dim":8,"max_position_embeddings":4096,"rope_parameters":{"rope_type":"longrope",)" + factors +
                                 R"(,"partial_rotary_factor":0.5,"original_max_position_embeddings":1024,"rope_theta":99})");
    EXPECT_EQ(newer.rotated(), 4);
    EXPECT_EQ(newer.rope.original_max_positions, 4096) << "the top level's default, as in transformers";
    EXPECT_EQ(newer.rope.theta, 99.0);
    EXPECT_EQ(parse_family("phi3").windows.front(), std::nullopt);
    EXPECT_EQ(parse_family("phi3", R"("sliding_window":2047)").windows.front(), 2047);
}

TEST(FamilyConfig, SmolLm3LeavesRopeOutOfEachFourthLayerUnlessAListSaysOtherwise) {
    const auto rotates = [](const std::string& members) {
        const ModelConfig config = parse_family("smollm3", members);
        std::vector<bool> out;
        for (std::int64_t layer = 0; layer < config.layers; ++layer) out.push_back(config.rotates(layer));
        return out;
    };
    EXPECT_THAT(rotates(""), ElementsAre(true, true, true, false));
    EXPECT_THAT(rotates(R"("no_rope_layer_interval":2)"), ElementsAre(true, false, true, false));
    EXPECT_THAT(rotates(R"("no_rope_layers":[0,1,1,0])"), ElementsAre(false, true, true, false));
    EXPECT_EQ(parse_family("smollm3").rope.theta, 2e6);
    const ModelConfig windows = parse_family("smollm3", R"("use_sliding_window":true,"sliding_window":9)");
    EXPECT_THAT(windows.windows, ElementsAre(std::nullopt, std::nullopt, std::nullopt, 9)) << "those without rope";
}

TEST(FamilyConfig, MultipliersAreThoseOfTheFamilysOwnKeys) {
    const ModelConfig granite = parse_family(
        "granite",
        R"("embedding_multiplier":12.0,"attention_multiplier":0.0078125,"residual_multiplier":0.22,"logits_scaling":8.0,"mlp_bias":true)");
    EXPECT_EQ(granite.embedding_scale, 12.0);
    EXPECT_EQ(granite.attention_scale, 0.0078125);
    EXPECT_EQ(granite.residual_scale, 0.22);
    EXPECT_EQ(granite.logit_scale, 0.125);
    EXPECT_TRUE(granite.mlp_bias);
    const ModelConfig cohere = parse_family("cohere");
    EXPECT_EQ(cohere.logit_scale, 0.0625);
    EXPECT_TRUE(cohere.is_parallel && cohere.shares_norm && cohere.rotates_neighbours);
    EXPECT_FALSE(cohere.norm_bias);
    const ModelConfig cohere2 = parse_family("cohere2", R"("position_embedding_type":"rope_gptj","sliding_window":9)");
    EXPECT_THAT(cohere2.windows, ElementsAre(9, 9, 9, std::nullopt));
    EXPECT_TRUE(cohere2.rotates(2));
    EXPECT_FALSE(cohere2.rotates(3));
}

TEST(FamilyConfig, BiasesResidualsAndPartialRopeFollowTheirKeys) {
    const ModelConfig neox = parse_family("gpt_neox", R"("num_attention_heads":4,"rotary_pct":0.5,"rotary_emb_base":500)");
    EXPECT_TRUE(neox.is_parallel && neox.attention_bias && neox.output_bias && neox.mlp_bias && neox.norm_bias);
    EXPECT_FALSE(neox.shares_norm);
    EXPECT_EQ(neox.rotated(), 8);
    EXPECT_EQ(neox.rope.theta, 500.0);
    // Pins: what transformers 4.46 to 4.57 wrote was refused.
    const ModelConfig both = parse_family("gpt_neox", R"("num_attention_heads":4,"rotary_pct":0.25,"partial_rotary_factor":0.25,)"
                                                      R"("rotary_emb_base":500,"rope_theta":500,"rope_scaling":null)");
    EXPECT_EQ(both.rotated(), 4);
    EXPECT_EQ(both.rope.theta, 500.0);
    EXPECT_FALSE(parse_family("gpt_neox", R"("num_attention_heads":4,"use_parallel_residual":false)").is_parallel);
    EXPECT_FALSE(parse_family("starcoder2", R"("use_bias":false)").mlp_bias);
    EXPECT_TRUE(parse_family("starcoder2").mlp_bias);
    const ModelConfig stablelm = parse_family("stablelm", R"("num_attention_heads":4,"use_qkv_bias":true)");
    EXPECT_TRUE(stablelm.attention_bias && stablelm.norm_bias);
    EXPECT_FALSE(stablelm.output_bias || stablelm.is_parallel);
    EXPECT_EQ(stablelm.rotated(), 4);
}

TEST(FamilyConfig, GgufFilesAreRefusedByNameWithWhatToUse) {
    const tests::TempFolder folder;
    const auto file = folder / "model-Q4_K_M.gguf";
    tests::write_text(file, "GGUF");
    for (const auto& path : {folder.path(), file}) {
        try {
            ModelConfig::load(path);
            ADD_FAILURE() << path;
        } catch (const std::runtime_error& error) {
            EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("model-Q4_K_M.gguf"), testing::HasSubstr("safetensors")));
        }
    }
    // Pins: repositories of GGUF files that have a config.json were told that weights are missing.
    tests::write_text(folder / "config.json", gemma3_of_the_hub);
    EXPECT_THAT(tests::thrown_by([&] { ModelConfig::load(folder.path()); }), testing::HasSubstr("GGUF files are not supported"));
    tests::write_text(folder / "model.safetensors", "");
    EXPECT_EQ(ModelConfig::load(folder.path()).layers, 34) << "the files beside it are not read";
}

// Pins: the error said only that there is no config.json.
TEST(FamilyConfig, AnAdapterInPlaceOfAModelIsNamed) {
    const tests::TempFolder folder;
    const auto error = [&] { return tests::thrown_by([&] { ModelConfig::load(folder.path()); }); };
    EXPECT_THAT(error(), testing::HasSubstr("save_pretrained wrote"));
    tests::write_text(folder / "adapter_config.json", "{}");
    EXPECT_THAT(error(), testing::AllOf(testing::HasSubstr("config.json"), testing::HasSubstr("the folder holds an adapter: --model")));
}

}  // namespace
}  // namespace lorry
