// Quantized checkpoints whose files contradict each other, lack what their config requires, or have numbers that are none, are refused by
// name instead of read wrongly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "engine/model/model.h"
#include "schema/json.h"
#include "tests/support/golden_model.h"
#include "tests/support/labels.h"
#include "tests/support/seeded_model.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown.h"

namespace lorry {
namespace {

// No other thread takes part.
const tests::Labelled refusals_without_tsan{"*", {tests::Label::not_tsan}};

using schema::Json;
using testing::AllOf;
using testing::HasSubstr;

// A quantized checkpoint whose config or tensors differ from the golden one's.
class Changed {
public:
    explicit Changed(const std::string& name) {
        std::filesystem::copy(tests::golden_folder() / "quantized" / name, folder_.path());
        config_ = *Json::parse(tests::read_whole(folder_ / "config.json"));
        tensors_ = *Json::parse(tests::read_whole(folder_ / "tensors.json"))->find("tensors")->as_array();
    }

    // Sets a key of quantization_config.
    Changed& set(const char* key, const Json& value) {
        Json quantization = *config_.find("quantization_config");
        quantization.set(key, value);
        config_.set("quantization_config", quantization);
        return *this;
    }
    // Sets a key of the weights of compressed-tensors' one group.
    Changed& set_of_weights(const char* key, const Json& value) {
        Json groups = *config_.find("quantization_config")->find("config_groups");
        const std::string name = groups.as_object()->begin()->first;
        Json group = groups.as_object()->begin()->second;
        Json weights = *group.find("weights");
        weights.set(key, value);
        group.set("weights", weights);
        groups.set(name, group);
        return set("config_groups", groups);
    }
    Changed& drop(const std::string& end) {
        std::erase_if(tensors_, [&](const Json& tensor) { return tensor.find("name")->as_string()->ends_with(end); });
        return *this;
    }
    // A tensor as tensors.json describes it.
    Changed& add(const Json& tensor) {
        tensors_.push_back(tensor);
        return *this;
    }
    // The description of a tensor.
    Json tensor(const std::string& name) const {
        for (const Json& one : tensors_) {
            if (*one.find("name")->as_string() == name) return one;
        }
        return {};
    }
    // Once loaded, element 1 of the tensor has these bits.
    template <class Bits>
    Changed& poke(const std::string& name, Bits bits) {
        poke_ = {name, std::string(reinterpret_cast<const char*>(&bits), sizeof bits)};
        return *this;
    }

    // What loading throws, or check-model if the weights are not read.
    std::string error(bool reads_weights = false) const {
        tests::write_text(folder_ / "config.json", config_.dump());
        Json all = Json::array({});
        for (const Json& tensor : tensors_) all.push(tensor);
        tests::write_text(folder_ / "tensors.json", Json::object({{"tensors", all}}).dump());
        const tests::SeededFolder weights(folder_.path(), "model.safetensors");
        write_bits(weights.path() / "model.safetensors");
        return tests::thrown_by([&] {
            engine::inspect_model(weights.path());
            if (reads_weights) engine::Model::load(weights.path(), *tests::float32_backend(), 1, 1);
        });
    }

private:
    void write_bits(const std::filesystem::path& file) const {
        if (poke_.first.empty()) return;
        std::string bytes = tests::read_whole(file);
        const auto tensors = *engine::parse_safetensors(std::as_bytes(std::span(bytes)));
        const engine::Tensor* const tensor = engine::find_tensor(tensors, poke_.first);
        ASSERT_NE(tensor, nullptr) << poke_.first;
        const auto at = static_cast<std::size_t>(reinterpret_cast<const char*>(tensor->bytes.data()) - bytes.data());
        bytes.replace(at + poke_.second.size(), poke_.second.size(), poke_.second);
        tests::write_text(file, bytes);
    }

    tests::TempFolder folder_;
    Json config_;
    Json::Array tensors_;
    std::pair<std::string, std::string> poke_;
};

const std::string query = "model.layers.0.self_attn.q_proj.";

// Pins: without the tensor, inputs were given groups in their own order, and all answers were wrong.
TEST(QuantizedRefusals, AnOrderOfInputsThatOnlyATensorTellsIsRequired) {
    const std::string wanted = "tensor " + query +
                               "g_idx [48] is missing in the checkpoint; quantization_config requires it (GPTQ, 4 bits, "
                               "groups of 16 with desc_act)";
    EXPECT_EQ(Changed("gptq-desc-act").error(), "accepted");
    EXPECT_EQ(Changed("gptq-desc-act").drop("g_idx").error(), wanted);
    EXPECT_EQ(Changed("gptq-desc-act").drop(query + "g_idx").error(), wanted);
    // Groups of their own order need none.
    EXPECT_EQ(Changed("gptq").set("desc_act", false).drop("g_idx").error(), "accepted");
    EXPECT_EQ(Changed("gptq").set("desc_act", true).set("static_groups", true).drop("g_idx").error(), "accepted");
    EXPECT_EQ(Changed("gptq-desc-act").set("desc_act", false).error(), "accepted");
    EXPECT_EQ(Changed("gptq-fused").set("desc_act", true).drop("g_idx").error(), "accepted") << "one group";

    for (const Json& order : {Json("group"), Json("dynamic"), Json(true)}) {
        EXPECT_THAT(Changed("compressed-w4").set_of_weights("actorder", order).error(),
                    AllOf(HasSubstr(query + "weight_g_idx [48] is missing"), HasSubstr("groups of 16 with actorder")));
    }
    for (const Json& order : {Json(), Json("weight"), Json("static"), Json(false)})
        EXPECT_EQ(Changed("compressed-w4").set_of_weights("actorder", order).error(), "accepted");
    EXPECT_THAT(Changed("compressed-w4").set_of_weights("actorder", "columns").error(), HasSubstr("weights.actorder = \"columns\""));
}

// Pins: such a checkpoint was loaded, and its jobs failed with an overflow that named neither file nor tensor.
TEST(QuantizedRefusals, NumbersThatAreNoneAreRefusedByTensorAndPlace) {
    struct Row {
        const char* folder;
        const char* tensor;
        const char* place;
    };
    constexpr std::uint16_t nan16 = 0x7FFF;  // in float16 and in bfloat16
    const std::string down = "model.layers.1.mlp.down_proj.";
    for (const Row& row :
         {Row{"gptq", "scales", "[0, 1]"}, Row{"awq", "scales", "[0, 1]"}, Row{"compressed-w4", "weight_scale", "[0, 1]"}}) {
        EXPECT_THAT(Changed(row.folder).poke(down + row.tensor, nan16).error(true),
                    AllOf(HasSubstr("model.safetensors: tensor " + down + row.tensor + " is NaN or infinite at " + row.place),
                          HasSubstr("the weights are damaged")));
    }
    for (const Row& row : {Row{"fp8-blocks", "weight_scale_inv", "[0, 1]"}, Row{"bitsandbytes-int8", "SCB", "[1]"},
                           Row{"bitsandbytes-fp4", "weight.absmax", "[1]"}, Row{"bitsandbytes-fp4", "weight.quant_map", "[1]"},
                           Row{"bitsandbytes-nf4", "weight.nested_quant_map", "[1]"}}) {
        EXPECT_THAT(Changed(row.folder).poke(down + row.tensor, std::numeric_limits<float>::infinity()).error(true),
                    HasSubstr("tensor " + down + row.tensor + " is NaN or infinite at " + row.place));
    }
    // Weights that are not in codes.
    for (const Row& row : {Row{"gptq", "model.norm.weight", "[1]"}, Row{"gptq", "lm_head.weight", "[0, 1]"},
                           Row{"gptq", "model.embed_tokens.weight", "[0, 1]"}}) {
        EXPECT_THAT(Changed(row.folder).poke(row.tensor, std::numeric_limits<float>::quiet_NaN()).error(true),
                    HasSubstr(fmt::format("tensor {} is NaN or infinite at {}", row.tensor, row.place)));
    }
}

TEST(QuantizedRefusals, ContradictionsAreRefusedByName) {
    EXPECT_THAT(
        Changed("gptq").set("checkpoint_format", "gptq_v2").set("format", "gptq").error(),
        HasSubstr("quantization_config.format = \"gptq\" is not supported: supported: the same as checkpoint_format, which is gptq_v2"));
    EXPECT_EQ(Changed("gptq").set("checkpoint_format", "gptq").set("format", "gptq").error(), "accepted");

    Changed two("fp8-blocks");
    Json scale = two.tensor(query + "weight_scale_inv");
    const double offset = *scale.find("offset")->as_number();
    scale.set("name", query + "weight_scale");
    scale.set("offset", 2.0 * offset);
    EXPECT_THAT(two.add(scale).error(),
                HasSubstr("tensor " + query + "weight_scale_inv differs from " + query + "weight_scale, which means the same"));

    const auto shape = [&](std::initializer_list<int> sizes) {
        Changed other("compressed-w4");
        Json tensor = other.tensor(query + "weight_shape");
        Json values = Json::array({});
        for (const int size : sizes) values.push(size);
        tensor.set("values", values);
        return other.drop(query + "weight_shape").add(tensor).error();
    };
    EXPECT_EQ(shape({48, 48}), "accepted");
    EXPECT_THAT(shape({49, 48}), HasSubstr("tensor " + query + "weight_shape says [49, 48], but config.json requires [48, 48]"));

    const auto zeros = [&](const char* folder, int value) {
        Changed other(folder);
        const Json values = Json::array({value, value});
        return other
            .add(Json::object({{"name", query + "weight_zero_point"}, {"shape", Json::array({2})}, {"dtype", "I32"}, {"values", values}}))
            .error();
    };
    for (const char* folder : {"compressed-w4", "compressed-w8a8"}) {
        EXPECT_EQ(zeros(folder, 0), "accepted");
        EXPECT_THAT(zeros(folder, 1),
                    HasSubstr(query + "weight_zero_point has zero points other than 0, but quantization_config says symmetric = true"));
    }
}

}  // namespace
}  // namespace lorry
