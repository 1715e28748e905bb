// Quantized checkpoints decode to the values of their format's description, give the logits of the dequantized model, and multiply as it
// does, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
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

class QuantizedCheckpoint : public testing::TestWithParam<std::string> {
protected:
    std::filesystem::path folder_ = tests::golden_folder() / "quantized" / GetParam();
    tests::GoldenFolder weights_{folder_};
};

// Pins: the order of nibbles and words, zero points, groups and codebooks of each format. The digests are those of a twin in Python.
TEST_P(QuantizedCheckpoint, DecodesToTheValuesOfTheFormatsDescription) {
    const engine::ModelConfig config = engine::ModelConfig::load(weights_.path());
    ASSERT_TRUE(config.quantized);
    const engine::ModelLayout layout = engine::layout_of(config);
    const engine::Checkpoint checkpoint(weights_.path(), *config.names);
    const engine::CodedSource source{.config = *config.quantized, .checkpoint = checkpoint, .prefix = layout.prefix};
    const auto goldens = schema::Json::parse(tests::read_whole(folder_ / "goldens.json"));
    const schema::Json& digests = *goldens->find("digests");
    std::size_t found = 0;
    for (const engine::LinearModule& linear : layout.linears) {
        if (linear.projection == engine::Projection::head && config.tied_head) continue;
        const auto module = source.find(linear.path, linear.out_features, linear.in_features);
        ASSERT_EQ(module.has_value(), digests.find(linear.path) != nullptr) << linear.path;
        if (!module) continue;
        ++found;
        EXPECT_EQ(fmt::format("{:016x}", digest_of(*engine::read_codes(source, *module), *module)), *digests.find(linear.path)->as_string())
            << linear.path;
    }
    EXPECT_EQ(found, digests.as_object()->size());
    EXPECT_THAT(engine::inspect_model(weights_.path()).unused_tensors, testing::IsEmpty());
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
        // Activations of 8 bits round at every layer; logits of an unrelated model are off by 1.4.
        if (rounds) {
            EXPECT_LT(relative_error(logits, one.logits), 0.1);
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
