// Which tensors an adapter must have, by the keys of its adapter_config.json. From names and shapes alone.
#include "engine/model/adapter_match.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>

#include "tests/support/labels.h"

namespace lorry {
namespace {

// No other thread takes part.
const tests::Labelled adapter_matches_without_tsan{"*", {tests::Label::not_tsan}};

using engine::AdapterConfig;
using engine::ModelConfig;
using engine::Tensor;
using testing::HasSubstr;

// Two layers of hidden 32; one expert of 16, or several.
ModelConfig model_of(const std::string& family, const std::string& members = "") {
    const std::string sizes = R"("hidden_size":32,"num_attention_heads":4,"num_key_value_heads":4,"head_dim":8,"num_hidden_layers":2,)"
                              R"("vocab_size":96,"intermediate_size":16)";
    const std::string keys = sizes + (members.empty() ? "" : "," + members);
    if (family == "gemma3")
        return ModelConfig::parse(R"({"model_type":"gemma3","vision_config":{},"text_config":{)" + keys + "}}", "", "config.json");
    return ModelConfig::parse(fmt::format(R"({{"model_type":"{}",{}}})", family, keys), "", "config.json");
}

// The tensors of adapters of rank 2 in a folder.
class Tensors {
public:
    Tensors& add(const std::string& name, std::vector<std::int64_t> shape) {
        tensors_.push_back(
            {.name = "base_model.model." + name, .dtype = "F32", .format = kernels::Format::float32, .shape = std::move(shape)});
        std::ranges::sort(tensors_, {}, &Tensor::name);
        return *this;
    }
    Tensors& pair(const std::string& module, std::int64_t inputs, std::int64_t outputs) {
        return add(module + ".lora_A.weight", {2, inputs}).add(module + ".lora_B.weight", {outputs, 2});
    }
    // What is wrong; "accepted" if nothing is.
    std::string error(const std::string& keys, const ModelConfig& model) const {
        const auto config = AdapterConfig::parse(R"({"peft_type":"LORA","r":2,)" + keys + "}");
        if (!config) return config.error();
        const engine::ModelLayout layout = engine::layout_of(model);
        const auto match = match_adapter(*config, layout, model, tensors_);
        return match ? "accepted" : match.error();
    }

private:
    std::vector<Tensor> tensors_;
};

// Pins: layers_to_transform left out modules that target_modules names whole, such as the head, and then their tensors were refused.
TEST(AdapterMatch, ATargetThatIsAWholePathIsOneInAnyLayer) {
    const ModelConfig model = model_of("llama");
    Tensors tensors;
    tensors.pair("model.layers.0.self_attn.q_proj", 32, 32).pair("model.layers.1.self_attn.v_proj", 32, 32).pair("lm_head", 32, 96);
    const std::string targets = R"("target_modules":["q_proj","lm_head","model.layers.1.self_attn.v_proj"])";
    EXPECT_EQ(tensors.error(targets + R"(,"layers_to_transform":[0])", model), "accepted");
    EXPECT_THAT(tensors.error(targets + R"(,"layers_to_transform":[1])", model),
                HasSubstr("layers.1.self_attn.q_proj.lora_A.weight is missing"));
    EXPECT_THAT(tensors.error(targets + R"(,"layers_to_transform":[0],"exclude_modules":["lm_head"])", model), HasSubstr("lm_head"));
}

// Pins: the biases of GPT-OSS's experts were said to be missing.
TEST(AdapterMatch, ExpertsHaveNoBiasesOfTheirOwnInAnAdapter) {
    const ModelConfig model =
        model_of("gpt_oss", R"("num_local_experts":2,"num_experts_per_tok":1,)"
                            R"("rope_scaling":{"rope_type":"yarn","factor":2,"original_max_position_embeddings":64})");
    Tensors tensors;
    for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
        const std::string attention = std::string(layer) + "self_attn.";
        tensors.pair(attention + "q_proj", 32, 32)
            .add(attention + "q_proj.base_layer.bias", {32})
            .add(layer + std::string("mlp.router.bias"), {2});
        for (const char* projection : {"k_proj", "v_proj", "o_proj"}) tensors.add(attention + projection + ".bias", {32});
    }
    const std::string keys = R"("target_modules":["q_proj"],"bias":)";
    EXPECT_EQ(tensors.error(keys + "\"all\"", model), "accepted");
    EXPECT_THAT(tensors.error(keys + "\"lora_only\"", model), HasSubstr("router.bias matches no module"));
    tensors.add("model.layers.0.mlp.experts.gate_up_proj_bias", {2, 32});
    EXPECT_THAT(tensors.error(keys + "\"all\"", model), HasSubstr("gate_up_proj_bias matches no module"));
}

// Pins: with one of the two parameters as a target, the modules of the other were taken for targets by the names of the shared expert's.
TEST(AdapterMatch, NamesOfTheSharedExpertsModulesDoNotMeanThoseOfFusedExperts) {
    const ModelConfig model =
        model_of("qwen2_moe", R"("num_experts":2,"num_experts_per_tok":1,"moe_intermediate_size":16,"shared_expert_intermediate_size":16)");
    Tensors tensors;
    for (int layer = 0; layer < 2; ++layer) {
        const std::string mlp = fmt::format("model.layers.{}.mlp.", layer);
        tensors.pair(mlp + "shared_expert.gate_proj", 32, 16).pair(mlp + "shared_expert.down_proj", 16, 32);
        for (int expert = 0; expert < 2; ++expert) tensors.pair(fmt::format("{}experts.{}.down_proj", mlp, expert), 16, 32);
    }
    const std::string modules = R"("target_modules":["gate_proj","down_proj"])";
    EXPECT_EQ(tensors.error(modules + R"(,"target_parameters":["mlp.experts.down_proj"])", model), "accepted");
    EXPECT_THAT(tensors.error(modules, model), HasSubstr("experts.0.gate_proj.lora_A.weight is missing")) << "one by one, as before";
    EXPECT_THAT(tensors.error(modules + R"(,"target_parameters":["mlp.experts.down_proj","mlp.experts.gate_up_proj"])", model),
                HasSubstr("experts.0.gate_proj.lora_A.weight is missing"));
}

// Pins: the error advised to name the router in target_modules, where PEFT does not find it.
TEST(AdapterMatch, LoraOnTheRouterOfFusedExpertsIsRefusedWithWhatToDo) {
    const std::string keys = R"("target_modules":["q_proj"],"target_parameters":["down_proj","gate.weight","gate_up_proj"])";
    for (const char* family : {"mixtral", "olmoe", "qwen3_moe"}) {
        const ModelConfig model = model_of(family, R"("num_experts":2,"num_experts_per_tok":1,"moe_intermediate_size":16)");
        EXPECT_THAT(
            Tensors().error(keys, model),
            HasSubstr("target_parameters names gate.weight, the router that chooses experts: LoRA on it is not supported; train with"))
            << family;
    }
    EXPECT_THAT(Tensors().error(keys, model_of("llama")), HasSubstr("only the weights of experts that this model has can be targets"));
}

// Pins: the error said only that a tensor of the part for images matches no module.
TEST(AdapterMatch, TensorsOfPartsThatDoNotRunAreNamedWithWhatToDo) {
    const ModelConfig model = model_of("gemma3");
    Tensors tensors;
    for (int layer = 0; layer < 2; ++layer) tensors.pair(fmt::format("model.language_model.layers.{}.self_attn.q_proj", layer), 32, 32);
    EXPECT_EQ(tensors.error(R"("target_modules":["q_proj"])", model), "accepted");
    Tensors vision = tensors;
    vision.pair("model.vision_tower.encoder.layers.0.self_attn.q_proj", 16, 16);
    EXPECT_THAT(vision.error(R"("target_modules":["q_proj"])", model),
                testing::AllOf(HasSubstr("vision_tower.encoder.layers.0.self_attn.q_proj.lora_A.weight changes a part of the model that"),
                               HasSubstr("train the text part alone")));
    tensors.pair("model.language_model.layers.0.self_attn.v_proj", 32, 32);
    EXPECT_THAT(tensors.error(R"("target_modules":["q_proj"])", model), HasSubstr("v_proj.lora_A.weight matches no module"));
}

}  // namespace
}  // namespace lorry
