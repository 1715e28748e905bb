// Quantized checkpoints decode to the values of their format's description, give the logits of the dequantized model, and multiply as it
// does, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "engine/model/coded_tensors.h"
#include "engine/model/model.h"
#include "engine/model/model_layout.h"
#include "kernels/checkpoint_weights.h"
#include "schema/json.h"
#include "tests/support/golden_model.h"
#include "tests/support/labels.h"
#include "tests/support/seeded_model.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown.h"

namespace lorry {
namespace {

using tests::Golden;
using tests::Sequence;
using tests::StepDriver;

std::uint64_t digest_of(const engine::CodedWeight& weight, const engine::CodedModule& module) {
    std::uint64_t hash = 14695981039346656037U;
    for (std::int64_t output = 0; output < module.out_features; ++output) {
        for (std::int64_t input = 0; input < module.in_features; ++input) {
            const auto bits = std::bit_cast<std::uint32_t>(kernels::decoded(weight.part, module.in_features, output, input));
            for (unsigned shift = 0; shift < 32; shift += 8) hash = (hash ^ (bits >> shift & 0xFFU)) * 1099511628211U;
        }
    }
    return hash;
}

double relative_error(std::span<const float> got, std::span<const float> want) {
    double errors = 0.0;
    double squares = 0.0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        errors += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2.0);
        squares += std::pow(static_cast<double>(want[i]), 2.0);
    }
    return std::sqrt(errors / squares);
}

std::string error_of(const std::filesystem::path& folder) {
    return tests::thrown_by([&] { engine::inspect_model(folder); });
}

// Of each module in codes, by its path.
std::map<std::string, std::string> digests_of(const std::filesystem::path& folder) {
    const engine::ModelConfig config = engine::ModelConfig::load(folder);
    CHECK(config.quantized.has_value(), "the checkpoint is quantized");
    const engine::ModelLayout layout = engine::layout_of(config);
    const engine::Checkpoint checkpoint(folder, *config.names);
    const engine::CodedSource source{.config = *config.quantized, .checkpoint = checkpoint, .prefix = layout.prefix};
    std::map<std::string, std::string> out;
    for (const engine::LinearModule& linear : layout.linears) {
        if (linear.projection == engine::Projection::head && config.tied_head) continue;
        if (const auto module = source.find(linear.path, linear.out_features, linear.in_features))
            out[linear.path] = fmt::format("{:016x}", digest_of(*engine::read_codes(source, *module), *module));
    }
    return out;
}

// Those of a twin in Python.
std::map<std::string, std::string> golden_digests(const std::filesystem::path& folder) {
    const auto goldens = schema::Json::parse(tests::read_whole(folder / "goldens.json"));
    std::map<std::string, std::string> out;
    for (const auto& [path, digest] : *goldens->find("digests")->as_object()) out[path] = *digest.as_string();
    return out;
}

std::filesystem::path quantized_folder(const std::string& name) { return tests::golden_folder() / "quantized" / name; }

class QuantizedCheckpoint : public testing::TestWithParam<std::string> {
protected:
    std::filesystem::path folder_ = quantized_folder(GetParam());
    tests::GoldenFolder weights_{folder_};
};

// Pins: the order of nibbles and words, zero points, groups and codebooks of each format.
TEST_P(QuantizedCheckpoint, DecodesToTheValuesOfTheFormatsDescription) {
    EXPECT_EQ(digests_of(weights_.path()), golden_digests(folder_));
    const engine::ModelReport report = engine::inspect_model(weights_.path());
    EXPECT_EQ(report.unused_tensors.empty(), report.config.skipped_parts.empty());
}

TEST_P(QuantizedCheckpoint, GivesTheLogitsOfTheDequantizedModel) {
    const Golden golden = tests::read_golden(folder_);
    const auto backend = tests::float32_backend();
    const auto model = engine::Model::load(weights_.path(), *backend, StepDriver::rows_max, StepDriver::rows_max);
    const bool rounds = model->config().quantized->rounds_inputs;
    StepDriver driver(*model, *backend);
    std::vector<Sequence> alone;
    float largest = 0.0F;
    for (const tests::GoldenCase& one : golden.cases) {
        Sequence& sequence = alone.emplace_back(driver.begin(one.prompt));
        driver.generate({&sequence}, static_cast<std::int64_t>(one.greedy.size()));
        std::vector<float> logits;
        for (std::size_t row = 0; row < one.prompt.size(); ++row)
            logits.insert(logits.end(), sequence.logits[row].begin(), sequence.logits[row].end());
        // The reference rounds as well, but an activation in the middle between two steps may become the other one.
        if (rounds) {
            EXPECT_LT(relative_error(logits, one.logits), 1e-3);
            continue;
        }
        EXPECT_EQ(tests::difference(logits, one.logits, 1e-4F), "");
        for (std::size_t i = 0; i < logits.size(); ++i) largest = std::max(largest, std::abs(logits[i] - one.logits[i]));
        EXPECT_EQ(tests::difference(sequence.logits.back(), one.last, 1e-4F), "");
        EXPECT_THAT(std::span(sequence.tokens).subspan(one.prompt.size()), testing::ElementsAreArray(one.greedy));
    }
    if (!rounds) RecordProperty("largest_difference", fmt::format("{:.1e}", largest));  // in the file of --gtest_output=xml:FILE
    // Batch invariance: in one batch and in chunks, each of which decodes weights in its own way.
    StepDriver batched(*model, *backend);
    std::vector<Sequence> together;
    for (const tests::GoldenCase& one : golden.cases) together.push_back(batched.begin(one.prompt));
    std::vector<Sequence*> batch;
    for (Sequence& sequence : together) batch.push_back(&sequence);
    batched.generate(batch, static_cast<std::int64_t>(golden.cases.front().greedy.size()), 7);
    for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(together[i].logits, alone[i].logits) << "case " << i;
}

TEST(Quantized, ATensorThatDoesNotFitTheConfigIsNamedWithBothShapes) {
    const tests::GoldenFolder weights(tests::golden_folder() / "quantized" / "gptq");
    auto config = *schema::Json::parse(tests::read_whole(weights.path() / "config.json"));
    const auto with = [&](const char* key, const schema::Json& value) {
        auto quantization = *config.find("quantization_config");
        quantization.set(key, value);
        auto changed = config;
        changed.set("quantization_config", quantization);
        tests::write_text(weights.path() / "config.json", changed.dump());
        return error_of(weights.path());
    };
    EXPECT_THAT(with("group_size", 8), testing::AllOf(testing::HasSubstr("model.safetensors"), testing::HasSubstr("q_proj.scales"),
                                                      testing::HasSubstr("[3, 48]"), testing::HasSubstr("[6, 48]")));
    EXPECT_THAT(with("bits", 8), testing::AllOf(testing::HasSubstr("q_proj.qweight"), testing::HasSubstr("[6, 48]")));
    EXPECT_THAT(with("quant_method", "bitsandbytes"), testing::HasSubstr("load_in_4bit"));
    EXPECT_EQ(with("bits", 4), "accepted");
}

// A quantized checkpoint of which one key of config.json is another.
class ChangedConfig {
public:
    ChangedConfig(const std::string& name, const char* key, std::optional<schema::Json> value) : weights_(quantized_folder(name)) {
        auto config = *schema::Json::parse(tests::read_whole(path() / "config.json"));
        config.set(key, value ? *value : schema::Json());
        tests::write_text(path() / "config.json", config.dump());
    }
    const std::filesystem::path& path() const { return weights_.path(); }

private:
    tests::GoldenFolder weights_;
};

// Pins: such folders were refused for a weight that is missing, which says nothing about what to do.
TEST(Quantized, OlderFoldersDescribeTheirCodesInAFileOfTheirOwn) {
    const ChangedConfig gptq("gptq-desc-act", "quantization_config", std::nullopt);
    EXPECT_THAT(error_of(gptq.path()), testing::AllOf(testing::HasSubstr("q_proj.qweight holds codes"),
                                                      testing::HasSubstr("config.json has no quantization_config")));
    tests::write_text(gptq.path() / "quantize_config.json",
                      R"({"bits":4,"group_size":16,"damp_percent":0.01,"desc_act":true,"static_groups":false,"sym":false,)"
                      R"("true_sequential":true,"model_name_or_path":null,"model_file_base_name":"model"})");
    EXPECT_EQ(digests_of(gptq.path()), golden_digests(quantized_folder("gptq-desc-act")));
    tests::write_text(gptq.path() / "quantize_config.json", R"({"bits":3})");
    EXPECT_THAT(error_of(gptq.path()), testing::HasSubstr("quantize_config.json: quantization_config.bits = 3 is not supported"));

    const ChangedConfig awq("awq", "quantization_config", std::nullopt);
    tests::write_text(awq.path() / "quant_config.json", R"({"zero_point":true,"q_group_size":16,"w_bit":4,"version":"GEMM"})");
    EXPECT_EQ(digests_of(awq.path()), golden_digests(quantized_folder("awq")));
}

// Two loads of the same codes under other descriptions are other models.
TEST(Quantized, TheFileOfAnOlderFolderIsPartOfTheFingerprint) {
    const ChangedConfig folder("gptq-desc-act", "quantization_config", std::nullopt);
    const auto backend = tests::float32_backend();
    std::vector<std::string> fingerprints;
    for (const char* format : {"gptq", "gptq_v2"}) {
        tests::write_text(folder.path() / "quantize_config.json",
                          fmt::format(R"({{"bits":4,"group_size":16,"desc_act":true,"checkpoint_format":"{}"}})", format));
        fingerprints.push_back(engine::Model::load(folder.path(), *backend, 1, 1)->fingerprint());
    }
    EXPECT_NE(fingerprints[0], fingerprints[1]);
}

// GPTQModel stores them, whatever zero_point says.
TEST(Quantized, ZeroPointsOfAwqThatAreInTheFileAreUsed) {
    const auto quantization = R"({"quant_method":"awq","bits":4,"group_size":16,"zero_point":false})";
    const ChangedConfig folder("awq", "quantization_config", *schema::Json::parse(quantization));
    EXPECT_EQ(digests_of(folder.path()), golden_digests(quantized_folder("awq")));
}

// Pins: scales of keys and values were left out without a word, and with them what the checkpoint was evaluated with.
TEST(Quantized, ScalesOfTheKvCacheAreRefusedByName) {
    for (const char* name : {"self_attn.k_scale", "self_attn.v_scale", "self_attn.kv_scale", "self_attn.attn.v_scale",
                             "self_attn.k_proj.output_scale", "self_attn.v_proj.output_scale", "self_attn.k_zero_point"}) {
        const tests::TempFolder folder;
        std::filesystem::copy(quantized_folder("fp8-tensor"), folder.path());
        auto tensors = tests::read_whole(folder / "tensors.json");
        const std::string first = R"({"tensors": [)";
        ASSERT_TRUE(tensors.starts_with(first));
        tensors.insert(first.size(), fmt::format(R"({{"name":"model.layers.0.{}","shape":[1],"offset":0.1,"scale":0}},)", name));
        tests::write_text(folder / "tensors.json", tensors);
        const tests::SeededFolder weights(folder.path(), "model.safetensors");
        EXPECT_THAT(error_of(weights.path()),
                    testing::AllOf(testing::HasSubstr("model.safetensors: tensor model.layers.0." + std::string(name)),
                                   testing::HasSubstr("scale of keys and values"), testing::HasSubstr("--kv-dtype int8")));
    }
}

// Pins: activations stayed as they were, without a word, where only some of the modules that share them are quantized.
TEST(Quantized, ModulesThatShareRoundedInputsAreQuantizedTogether) {
    const auto error_with_numbers_for = [](const std::string& module, const char* shape) {
        const tests::TempFolder folder;
        std::filesystem::copy(quantized_folder("compressed-w8a8"), folder.path());
        std::string tensors = tests::read_whole(folder / "tensors.json");
        const std::string name = fmt::format(R"({{"name":"model.layers.0.{}.weight","shape":{},)", module, shape);
        const std::string codes = name + R"("dtype":"I8","bits":true})";
        const std::size_t place = tensors.find(codes);
        CHECK(place != std::string::npos, "the module is quantized");
        tests::write_text(folder / "tensors.json", tensors.replace(place, codes.size(), name + R"("offset":0,"scale":0.1})"));
        const tests::SeededFolder weights(folder.path(), "model.safetensors");
        return error_of(weights.path());
    };
    EXPECT_THAT(
        error_with_numbers_for("self_attn.k_proj", "[24,48]"),
        testing::AllOf(testing::HasSubstr("model.safetensors: the weight of model.layers.0.self_attn.k_proj is not quantized"),
                       testing::HasSubstr("that of model.layers.0.self_attn.q_proj is quantized"), testing::HasSubstr("--quantize int8")));
    EXPECT_THAT(
        error_with_numbers_for("mlp.gate_proj", "[80,48]"),
        testing::HasSubstr("the weight of model.layers.0.mlp.up_proj is quantized and that of model.layers.0.mlp.gate_proj is not"));
    EXPECT_EQ(error_with_numbers_for("self_attn.o_proj", "[48,48]"), "accepted") << "it shares its inputs with no other module";
}

// Joins tensors of all experts as transformers 5 has them in memory: those of gate and up one after the other.
void fuse_experts(const std::filesystem::path& file, std::int64_t layers, std::int64_t experts) {
    const std::string bytes = tests::read_whole(file);
    auto tensors = *engine::parse_safetensors(std::as_bytes(std::span(bytes)));
    schema::Json header = schema::Json::object({});
    std::string data;
    const auto add = [&](const std::string& name, std::span<const std::string> parts, std::vector<std::int64_t> shape, bool of_two) {
        const std::size_t begin = data.size();
        const engine::Tensor* first = nullptr;
        for (const std::string& part : parts) {
            const engine::Tensor* const tensor = engine::find_tensor(tensors, part);
            if (first == nullptr) first = tensor;
            data.append(reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size());
        }
        if (shape.empty()) shape = first->shape;
        if (parts.size() > 1) shape = {experts, first->shape[0] * (of_two ? 2 : 1), first->shape[1]};
        schema::Json sizes = schema::Json::Array();
        for (const std::int64_t size : shape) sizes.push(size);
        schema::Json offsets = schema::Json::Array();
        for (const std::size_t at : {begin, data.size()}) offsets.push(static_cast<std::int64_t>(at));
        header.set(name,
                   schema::Json::object({{"dtype", first->dtype}, {"shape", std::move(sizes)}, {"data_offsets", std::move(offsets)}}));
    };
    for (const engine::Tensor& tensor : tensors) {
        if (tensor.name.find(".experts.") == std::string::npos) add(tensor.name, std::vector{tensor.name}, tensor.shape, false);
    }
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        const std::string list = fmt::format("model.layers.{}.mlp.experts.", layer);
        for (const auto& [end, fused] : {std::pair("weight", ""), std::pair("weight_scale_inv", "_scale_inv")}) {
            std::vector<std::string> gate_up;
            std::vector<std::string> down;
            for (std::int64_t expert = 0; expert < experts; ++expert) {
                for (const char* module : {"gate_proj", "up_proj"}) gate_up.push_back(fmt::format("{}{}.{}.{}", list, expert, module, end));
                down.push_back(fmt::format("{}{}.down_proj.{}", list, expert, end));
            }
            add(list + "gate_up_proj" + fused, gate_up, {}, true);
            add(list + "down_proj" + fused, down, {}, false);
        }
    }
    const std::string text = header.dump();
    const std::uint64_t length = text.size();
    tests::write_text(file, std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data);
}

// Pins: the codes were cut into those of each expert, but their scales were not, and a tensor that no file has was called missing.
TEST(Quantized, ScalesOfFusedExpertsAreCutAsTheirCodesAre) {
    const std::string name = "experts-fp8-blocks";
    const tests::GoldenFolder folder(quantized_folder(name));
    const engine::ModelConfig config = engine::ModelConfig::load(folder.path());
    fuse_experts(folder.path() / "model.safetensors", config.layers, config.experts->count);
    EXPECT_EQ(digests_of(folder.path()), golden_digests(quantized_folder(name)));
    EXPECT_THAT(engine::inspect_model(folder.path()).unused_tensors, testing::IsEmpty());
    // With other blocks than these, gate and up share scales.
    const engine::ModelLayout layout = engine::layout_of(config);
    const engine::Checkpoint checkpoint(folder.path(), *config.names);
    engine::QuantizedConfig larger = *config.quantized;
    larger.block = engine::CodeBlock{.outputs = 48, .inputs = 16};
    const engine::CodedSource source{.config = larger, .checkpoint = checkpoint, .prefix = layout.prefix};
    EXPECT_THAT(tests::thrown_by([&] { (void)source.find("model.layers.0.mlp.experts.1.up_proj", 32, 48); }),
                testing::AllOf(testing::HasSubstr("gate and up share"), testing::HasSubstr("32 outputs")));
}

TEST(Quantized, GpusRefuseCodesAndMixturesOfExperts) {
    const auto gpu = kernels::make_cuda_backend({.storage = {.weights = kernels::Format::float32}, .matmul_table = ""});
    const auto refusal = [&](const std::filesystem::path& folder) {
        const tests::GoldenFolder weights(folder);
        return tests::thrown_by([&] { engine::Model::load(weights.path(), *gpu, 1, 1); });
    };
    EXPECT_THAT(refusal(quantized_folder("gptq")),
                testing::AllOf(testing::HasSubstr("no kernels for quantized checkpoints (GPTQ, 4 bits, groups of 16)"),
                               testing::HasSubstr("--device cpu")));
    EXPECT_THAT(refusal(tests::golden_folder() / "checkpoints" / "mixtral"),
                testing::AllOf(testing::HasSubstr("no mixtures of experts (model_type = mixtral)"), testing::HasSubstr("--device cpu")));
}

// Experts of GPT-OSS alternate gate and up, which no other format has; and MXFP4 has no other family.
TEST(Quantized, ExpertsThatNoFormatHasAreRefused) {
    const auto refused = [](const char* checkpoint, const char* quantization) {
        const tests::TempFolder folder;
        auto config = *schema::Json::parse(tests::read_whole(tests::golden_folder() / "quantized" / checkpoint / "config.json"));
        config.set("quantization_config", *schema::Json::parse(quantization));
        tests::write_text(folder / "config.json", config.dump());
        return error_of(folder.path());
    };
    EXPECT_THAT(refused("experts-mxfp4", R"({"quant_method": "fp8"})"), testing::HasSubstr("in MXFP4 and in full precision only"));
    EXPECT_THAT(refused("gptq", R"({"quant_method": "mxfp4"})"), testing::HasSubstr("MXFP4 is supported for GPT-OSS only"));
}

TEST(Quantized, AScaleOfMxfp4WithWhichWeightsAreNotFiniteIsRefused) {
    const tests::GoldenFolder weights(tests::golden_folder() / "quantized" / "experts-mxfp4");
    const std::filesystem::path file = weights.path() / "model.safetensors";
    std::string bytes = tests::read_whole(file);
    const auto tensors = engine::parse_safetensors(std::as_bytes(std::span(bytes)));
    const auto scales = std::ranges::find_if(*tensors, [](const auto& tensor) { return tensor.name.ends_with("down_proj_scales"); });
    bytes[static_cast<std::size_t>(reinterpret_cast<const char*>(scales->bytes.data()) - bytes.data())] = static_cast<char>(253);
    tests::write_text(file, bytes);
    const auto backend = tests::float32_backend();
    EXPECT_THAT([&] { engine::Model::load(weights.path(), *backend, 1, 1); },
                testing::ThrowsMessage<std::runtime_error>(
                    testing::HasSubstr("experts.0.down_proj.weight_scales has the exponent 253, with which weights are not finite")));
}

// bitsandbytes takes such a size for a power of two below it, and the scales that were read here belonged to other weights.
TEST(Quantized, BlocksOfBitsandbytesAreOfSizesThatItHas) {
    const tests::GoldenFolder weights(tests::golden_folder() / "quantized" / "bitsandbytes-nf4");
    const std::filesystem::path file = weights.path() / "model.safetensors";
    const std::string before = tests::read_whole(file);
    for (const auto& [from, to, error] :
         {std::tuple(R"("blocksize": 64)", R"("blocksize": 63)", "has blocksize 63; bitsandbytes has powers of two"),
          std::tuple(R"("nested_blocksize": 256)", R"("nested_blocksize": 255)", "has nested_blocksize 255;")}) {
        std::string changed = before;
        const std::size_t place = changed.find(from);
        ASSERT_NE(place, std::string::npos);
        tests::write_text(file, changed.replace(place, std::string_view(from).size(), to));
        EXPECT_THAT(error_of(weights.path()), testing::HasSubstr(error));
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizedCheckpoint, testing::ValuesIn(tests::golden_names("quantized")), [](const auto& parameter) {
    std::string name = parameter.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

}  // namespace
}  // namespace lorry
