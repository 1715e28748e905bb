// Reading config.json: both generations of keys, the defaults of each family, and unsupported values.
#include "engine/model/model_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include <fmt/format.h>

#include "engine/model/rope.h"
#include "schema/json.h"
#include "tests/support/golden_model.h"
#include "tests/support/labels.h"
#include "tests/support/thrown.h"

namespace lorry {
namespace {

// No other thread takes part.
const tests::Labelled models_configs_without_tsan{"*", {tests::Label::not_tsan}};

using engine::ModelConfig;
using engine::RopeConfig;

std::string error_of(const std::string& config, const std::string& generation = "") {
    return tests::thrown_by([&] { ModelConfig::parse(config, generation, "models/x/config.json"); });
}

// The smallest config of a family, with `members` added.
std::string config_with(const std::string& family, const std::string& members) {
    const std::string sizes =
        family == "gpt2" ? R"("n_embd":64,"n_head":16,"n_layer":4,"vocab_size":100)"
                         : R"("hidden_size":64,"num_attention_heads":16,"num_hidden_layers":4,"vocab_size":100,"intermediate_size":96)";
    return R"({"model_type":")" + family + "\"," + sizes + (members.empty() ? "" : "," + members) + "}";
}
ModelConfig parse(const std::string& family, const std::string& members = "") {
    return ModelConfig::parse(config_with(family, members), "", "config.json");
}

// Pins: where an object of rope and the top level name different original contexts, that of transformers counts.
TEST(ModelConfig, TheOriginalContextIsThatOfTransformers) {
    const auto original = [](const std::string& family, const std::string& members) {
        return parse(family, R"("max_position_embeddings":8192,)" + members).rope.original_max_positions;
    };
    const std::string llama3 = R"("rope_scaling":{"rope_type":"llama3","factor":2,"original_max_position_embeddings":1024,)"
                               R"("low_freq_factor":1,"high_freq_factor":4})";
    EXPECT_EQ(original("llama", llama3), 1024);
    EXPECT_EQ(original("llama", llama3 + R"(,"original_max_position_embeddings":2048)"), 2048);
    EXPECT_EQ(original("gemma3_text", llama3 + R"(,"original_max_position_embeddings":2048)"), 1024) << "an object for each type of layers";
    const std::string longrope =
        R"("rope_scaling":{"type":"longrope","short_factor":[1,1],"long_factor":[2,2],"original_max_position_embeddings":1024})";
    EXPECT_EQ(original("phi3", longrope), 4096) << "the default of the top level";
    EXPECT_EQ(original("phi3", longrope + R"(,"original_max_position_embeddings":1024)"), 1024);
}

class RefusedConfig : public testing::TestWithParam<std::string> {};

TEST_P(RefusedConfig, IsRefusedWithFileKeyAndValue) {
    std::ifstream file(tests::golden_folder() / "refused_configs" / (GetParam() + ".json"));
    const auto wrapped = schema::Json::parse(std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>()));
    ASSERT_TRUE(wrapped.has_value()) << wrapped.error();
    const schema::Json* text = wrapped->find("config_text");
    const std::string error = error_of(text != nullptr ? *text->as_string() : wrapped->find("config")->dump());
    if (wrapped->find("accepted") != nullptr) {
        EXPECT_EQ(error, "accepted");
        return;
    }
    EXPECT_THAT(error, testing::HasSubstr("config.json"));
    for (const auto& word : *wrapped->find("error_contains")->as_array()) EXPECT_THAT(error, testing::HasSubstr(*word.as_string()));
}

INSTANTIATE_TEST_SUITE_P(Configs, RefusedConfig, testing::ValuesIn(tests::golden_names("refused_configs")), [](const auto& parameter) {
    std::string name = parameter.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

TEST(ModelConfig, AbsentKeysMeanWhatEachConfigurationClassSays) {
    EXPECT_EQ(parse("llama").kv_heads, 16);
    EXPECT_EQ(parse("llama").max_positions, 2048);
    EXPECT_EQ(parse("llama").head_dim, 4);
    EXPECT_FALSE(parse("llama").tied_head);
    EXPECT_EQ(parse("mistral").kv_heads, 8);
    EXPECT_EQ(parse("mistral", R"("num_key_value_heads":null)").kv_heads, 16);
    EXPECT_EQ(parse("mistral").windows.front(), 4096);
    EXPECT_EQ(parse("mistral", R"("sliding_window":null)").windows.front(), std::nullopt);
    EXPECT_EQ(parse("qwen3", R"("num_key_value_heads":2)").head_dim, 128);
    EXPECT_EQ(parse("qwen3", R"("num_key_value_heads":2)").qk_norm, engine::QkNorm::by_head);
    EXPECT_TRUE(parse("qwen2", R"("num_key_value_heads":2)").attention_bias);
    EXPECT_FALSE(parse("qwen2", R"("num_key_value_heads":2)").output_bias);
    EXPECT_THAT(error_of(config_with("qwen2", "")), testing::HasSubstr("num_key_value_heads"));  // 32 when absent
    const ModelConfig gpt2 = parse("gpt2");
    EXPECT_TRUE(gpt2.tied_head);
    EXPECT_EQ(gpt2.intermediate, 256);
    EXPECT_EQ(gpt2.max_positions, 1024);
    EXPECT_EQ(gpt2.activation, kernels::ActivationKind::gelu_tanh);
    EXPECT_EQ(gpt2.rope.kind, RopeConfig::Kind::none);
}

// The names of transformers' ACT2FN; quick_gelu is another function.
TEST(ModelConfig, GeluHasManyNamesAndTwoForms) {
    const auto named = [](const char* name) { return parse("gpt2", fmt::format(R"("activation_function":"{}")", name)).activation; };
    for (const char* name : {"gelu", "gelu_python"}) EXPECT_EQ(named(name), kernels::ActivationKind::gelu) << name;
    for (const char* name : {"gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"})
        EXPECT_EQ(named(name), kernels::ActivationKind::gelu_tanh) << name;
    EXPECT_THAT(error_of(config_with("gpt2", R"("activation_function":"quick_gelu")")), testing::HasSubstr("quick_gelu"));
}

// Pins: 1.0 was refused where 1 is accepted.
TEST(ModelConfig, AHarmlessNumberIsAcceptedHoweverItIsWritten) {
    for (const char* one : {"1", "1.0", "1.00", "1e0"}) {
        const std::string members = fmt::format(R"("logits_scaling":{0},"rope_parameters":{{"partial_rotary_factor":{0}}})", one);
        EXPECT_EQ(error_of(config_with("llama", members)), "accepted") << one;
    }
    EXPECT_THAT(error_of(config_with("llama", R"("logits_scaling":8.0)")), testing::HasSubstr("logits_scaling = 8.0 is not supported"));
}

// Pins: one of the two names counted in silence.
TEST(ModelConfig, TwoNamesForTheSameMustNotContradictEachOther) {
    EXPECT_EQ(parse("gpt2", R"("num_attention_heads":16,"hidden_size":64)").heads, 16);
    EXPECT_EQ(error_of(config_with("gpt2", R"("num_attention_heads":null)")), "accepted");
    EXPECT_THAT(error_of(config_with("gpt2", R"("num_attention_heads":8)")),
                testing::HasSubstr("num_attention_heads = 8 is not supported: n_head = 16 means the same; keep one of them"));
    for (const char* member : {"hidden_size", "num_hidden_layers"})
        EXPECT_THAT(error_of(config_with("gpt2", fmt::format(R"("{}":8)", member))), testing::HasSubstr(member));
    EXPECT_THAT(error_of(config_with("mixtral", R"("num_local_experts":8,"num_experts":4)")), testing::HasSubstr("means the same"));
}

TEST(ModelConfig, ARequiredKeyThatIsNullIsNotCalledMissing) {
    EXPECT_THAT(error_of(R"({"model_type":"llama","hidden_size":null})"), testing::HasSubstr("hidden_size is null; it is required"));
    EXPECT_THAT(error_of(R"({"model_type":"llama"})"), testing::HasSubstr("hidden_size is missing; it is required"));
}

TEST(ModelConfig, BothGenerationsOfRopeAndDtypeKeysGiveTheSame) {
    const ModelConfig older = parse("llama", R"("torch_dtype":"bfloat16","rope_theta":5e5,"rope_scaling":{"type":"linear","factor":2})");
    const ModelConfig newer =
        parse("llama", R"("dtype":"bfloat16","rope_parameters":{"rope_type":"linear","factor":2,"rope_theta":500000})");
    for (const ModelConfig& config : {older, newer}) {
        EXPECT_EQ(config.storage, kernels::Format::bfloat16);
        EXPECT_EQ(config.rope.kind, RopeConfig::Kind::linear);
        EXPECT_EQ(config.rope.theta, 5e5);
        EXPECT_EQ(config.rope.factor, 2.0);
        EXPECT_EQ(config.max_positions, 4096);
    }
    EXPECT_EQ(parse("llama", R"("dtype":"float16","torch_dtype":"float32")").storage, kernels::Format::float16);
}

TEST(ModelConfig, WindowsBeginAtMaxWindowLayersUnlessLayerTypesSayOtherwise) {
    const std::string on = R"("num_key_value_heads":2,"use_sliding_window":true,"sliding_window":9)";
    using Windows = std::vector<std::optional<std::int64_t>>;
    const auto none = std::nullopt;
    EXPECT_EQ(parse("qwen2", on + R"(,"max_window_layers":2)").windows, (Windows{none, none, 9, 9}));
    EXPECT_EQ(parse("qwen2", R"("num_key_value_heads":2,"sliding_window":9,"max_window_layers":2)").windows,
              (Windows{none, none, none, none}));
    EXPECT_EQ(parse("qwen2", on + R"(,"layer_types":["sliding_attention","full_attention","full_attention","sliding_attention"])").windows,
              (Windows{9, none, none, 9}));
}

TEST(ModelConfig, TheEndTokensOfGenerationConfigComeFirst) {
    const std::string config = config_with("llama", R"("eos_token_id":2,"bos_token_id":1)");
    EXPECT_THAT(ModelConfig::parse(config, "", "config.json").eos_ids, testing::ElementsAre(2));
    EXPECT_EQ(ModelConfig::parse(config, "", "config.json").bos_id, 1);
    EXPECT_THAT(ModelConfig::parse(config, R"({"eos_token_id":[7,8]})", "config.json").eos_ids, testing::ElementsAre(7, 8));
    EXPECT_THAT(ModelConfig::parse(config, R"({"do_sample":true})", "config.json").eos_ids, testing::ElementsAre(2));
    EXPECT_THAT(ModelConfig::parse(config, R"({"eos_token_id":[7,100]})", "config.json").eos_ids, testing::ElementsAre(7))
        << "id 100 is beyond the vocabulary";
    EXPECT_THAT(error_of(config, R"({"eos_token_id":"</s>"})"), testing::HasSubstr("models/x/generation_config.json: eos_token_id"));
}

TEST(ModelConfig, SamplingDefaultsAreThoseOfGenerationConfig) {
    const std::string config = config_with("llama", "");
    const auto with = [&](const std::string& generation) { return ModelConfig::parse(config, generation, "config.json"); };
    const ModelConfig given =
        with(R"({"do_sample":false,"temperature":0.6,"top_p":0.9,"top_k":20,"min_p":0.05,"repetition_penalty":1.05,"max_new_tokens":512})");
    EXPECT_EQ(given.sampling_defaults.temperature, 0.6) << "do_sample is not read, as in vLLM";
    EXPECT_EQ(given.sampling_defaults.top_p, 0.9);
    EXPECT_EQ(given.sampling_defaults.top_k, 20);
    EXPECT_EQ(given.sampling_defaults.min_p, 0.05);
    EXPECT_EQ(given.sampling_defaults.repetition_penalty, 1.05);
    EXPECT_EQ(given.max_new_tokens, 512);
    for (const char* nothing : {"", "{}", R"({"temperature":null,"top_k":null,"max_new_tokens":null,"num_beams":4})"}) {
        const ModelConfig none = with(nothing);
        EXPECT_FALSE(none.sampling_defaults.temperature || none.sampling_defaults.top_p || none.sampling_defaults.top_k ||
                     none.sampling_defaults.min_p || none.sampling_defaults.repetition_penalty || none.max_new_tokens);
    }
    EXPECT_EQ(with(R"({"top_k":-1})").sampling_defaults.top_k, 0);
    for (const char* wrong : {R"({"temperature":-1})", R"({"top_p":0})", R"({"top_p":1.5})", R"({"top_k":"all"})", R"({"min_p":2})",
                              R"({"repetition_penalty":0})", R"({"max_new_tokens":0})"}) {
        EXPECT_THAT(error_of(config, wrong), testing::HasSubstr("models/x/generation_config.json: ")) << wrong;
    }
}

TEST(ModelConfig, ScaledRopeLengthensTheContext) {
    const auto limit = [](const char* rope) {
        return parse("llama", std::string(R"("max_position_embeddings":1000,"rope_scaling":)") + rope).max_positions;
    };
    EXPECT_EQ(limit("null"), 1000);
    EXPECT_EQ(limit(R"({"rope_type":"dynamic","factor":4})"), 4000);
    EXPECT_EQ(limit(R"({"rope_type":"yarn","factor":4,"original_max_position_embeddings":1000})"), 4000);
    EXPECT_EQ(limit(R"({"rope_type":"yarn","factor":4,"original_max_position_embeddings":250})"), 1000);
    EXPECT_EQ(limit(R"({"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":125})"),
              1000);
}

// Pins: such a context made the size of the rope table overflow, and writes went out of its bounds.
TEST(ModelConfig, AContextBeyondTheLimitOfSizesIsRefused) {
    const auto limit = [](const char* rope) {
        return error_of(config_with("llama", std::string(R"("head_dim":32768,"max_position_embeddings":268435456,)") + rope));
    };
    EXPECT_EQ(limit(R"("rope_scaling":{"rope_type":"linear","factor":1})"), "accepted");
    for (const char* kind : {"linear", "dynamic", "yarn"}) {
        EXPECT_THAT(limit(fmt::format(R"("rope_scaling":{{"rope_type":"{}","factor":1e6}})", kind).c_str()),
                    testing::AllOf(testing::HasSubstr("rope_scaling"), testing::HasSubstr("more than 268435456 tokens")));
    }
    EXPECT_THAT(limit(R"("rope_parameters":{"rope_type":"linear","factor":2})"), testing::HasSubstr("rope_parameters"));
}

TEST(ModelConfig, TheContextIsLimitedButNotThatOfLearnedPositions) {
    ModelConfig config = parse("llama", R"("max_position_embeddings":1000,"rope_scaling":{"rope_type":"dynamic","factor":2})");
    EXPECT_EQ(config.max_positions, 2000);
    engine::limit_context(config, 1500);
    EXPECT_EQ(config.max_positions, 1500);
    EXPECT_EQ(config.rope.original_max_positions, 1000) << "frequencies do not depend on the limit";
    engine::limit_context(config, 1600);
    EXPECT_EQ(config.max_positions, 1500) << "it is never raised";
    engine::limit_context(config, 0);
    EXPECT_EQ(config.max_positions, 1);
    ModelConfig learned = parse("gpt2");
    engine::limit_context(learned, 1);
    EXPECT_EQ(learned.max_positions, 1024) << "the checkpoint has a row for each";
}

}  // namespace
}  // namespace lorry
