// Golden checkpoints of every family give the same logits and greedy tokens as transformers, alone, chunked and in one batch.
#include "engine/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "engine/model/model_layout.h"
#include "engine/model/weights.h"
#include "schema/json.h"
#include "tests/support/golden_model.h"
#include "tests/support/labels.h"
#include "tests/support/seeded_model.h"
#include "tests/support/temp_folder.h"

namespace lorry {
namespace {

using tests::Golden;
using tests::Sequence;
using tests::StepDriver;

class GoldenCheckpoint : public testing::TestWithParam<std::string> {
protected:
    std::filesystem::path folder_ = tests::golden_folder() / "checkpoints" / GetParam();
    Golden golden_ = tests::read_golden(folder_);
    tests::GoldenFolder weights_{folder_};
    std::unique_ptr<kernels::Backend> backend_ = tests::float32_backend();
    std::unique_ptr<engine::Model> model_ = engine::Model::load(weights_.path(), *backend_, StepDriver::rows_max, StepDriver::rows_max);
};

const tests::Labelled gpu_checkpoints{"Families/GoldenCheckpoint.*", {tests::Label::on_cuda}};
const tests::Labelled gpu_checkpoints_with_asan{"Families/GoldenCheckpoint.Gives*", {tests::Label::asan_cuda}};
// One model of each kind of layer (gpt2's, grouped heads, windows, norms of q and k, added norms and caps, parallel): the others differ in
// numbers alone.
const tests::Labelled few_quantized_with_tsan{
    "*Quantized/gpt2_*:*Quantized/llama_b*:*Quantized/llama_d*:*Quantized/llama_l*:*Quantized/llama_m*:*Quantized/llama_y*:"
    "*Quantized/mistral*:*Quantized/qwen2:*Quantized/qwen2_layer*:*Quantized/qwen3_*:"
    "*Quantized/gemma:*Quantized/gemma3*:*Quantized/phi3_*:*Quantized/olmo2:*Quantized/smollm3:*Quantized/granite:"
    "*Quantized/gpt_neox_*:*Quantized/starcoder2:*Quantized/stablelm*:*Quantized/cohere*",
    {tests::Label::not_tsan}};

// Pins: every op, the config's defaults and names, the rope variants, windows and KV paging against the reference.
TEST_P(GoldenCheckpoint, GivesTheLogitsAndGreedyTokensOfTransformers) {
    StepDriver driver(*model_, *backend_);
    float largest = 0.0F;
    for (std::size_t i = 0; i < golden_.cases.size(); ++i) {
        SCOPED_TRACE("case " + std::to_string(i));
        const tests::GoldenCase& golden = golden_.cases[i];
        Sequence sequence = driver.begin(golden.prompt);
        driver.generate({&sequence}, static_cast<std::int64_t>(golden.greedy.size()));

        std::vector<float> logits;
        for (std::size_t row = 0; row < golden.prompt.size(); ++row)
            logits.insert(logits.end(), sequence.logits[row].begin(), sequence.logits[row].end());
        EXPECT_EQ(tests::difference(logits, golden.logits, 1e-4F), "");
        EXPECT_EQ(tests::difference(sequence.logits.back(), golden.last, 1e-4F), "");
        for (std::size_t j = 0; j < logits.size(); ++j) largest = std::max(largest, std::abs(logits[j] - golden.logits[j]));
        EXPECT_THAT(std::span(sequence.tokens).subspan(golden.prompt.size()), testing::ElementsAreArray(golden.greedy));
    }
    RecordProperty("largest_difference", fmt::format("{:.1e}", largest));  // in the file of --gtest_output=xml:FILE
}

// Pins batch invariance of the whole forward pass: results do not depend, in any bit, on the other rows of the batch, the chunks, or which
// rows sample.
TEST_P(GoldenCheckpoint, GivesTheSameBitsAloneAndChunkedInOneBatch) {
    StepDriver one_by_one(*model_, *backend_);
    StepDriver batched(*model_, *backend_, StepDriver::Samples::where_tokens_end);
    std::vector<Sequence> alone;
    std::vector<Sequence> together;
    for (const tests::GoldenCase& golden : golden_.cases) {
        alone.push_back(one_by_one.begin(golden.prompt));
        together.push_back(batched.begin(golden.prompt));
    }
    const auto tokens = static_cast<std::int64_t>(golden_.cases.front().greedy.size());
    for (Sequence& sequence : alone) one_by_one.generate({&sequence}, tokens);
    std::vector<Sequence*> batch;
    for (Sequence& sequence : together) batch.push_back(&sequence);
    batched.generate(batch, tokens, 5);
    for (std::size_t i = 0; i < alone.size(); ++i) {
        EXPECT_EQ(together[i].tokens, alone[i].tokens) << "case " << i;
        alone[i].logits.erase(alone[i].logits.begin(), alone[i].logits.begin() + alone[i].prompt_tokens - 1);
        EXPECT_EQ(together[i].logits, alone[i].logits) << "case " << i;
    }
}

// Pins: every family works with narrow weight formats. `lorry bench loss` measures the effect on answers; the untrained weights here are
// the hardest to store.
TEST_P(GoldenCheckpoint, StaysNearTheLogitsOfTransformersWhenQuantized) {
    struct Way {
        kernels::Quantization quantize;
        kernels::KvFormat kv;
        double error_most;  // of all logits, relative to their norm; logits of an unrelated model are off by 1.4
    };
    using enum kernels::KvFormat;
    for (const Way& way : {Way{kernels::Quantization::none, int8, 0.05}, Way{kernels::Quantization::int8, as_weights, 0.1},
                           Way{kernels::Quantization::int8, int8, 0.1}, Way{kernels::Quantization::int4, as_weights, 0.6},
                           Way{kernels::Quantization::fp8, as_weights, 0.3}, Way{kernels::Quantization::none, fp8, 0.2}}) {
        // A GPU runs no experts, and only that has fp8. Where rounding makes a token choose another expert, its logits jump.
        const bool has_experts = model_->config().experts.has_value();
        if (has_experts && (way.quantize == kernels::Quantization::fp8 || way.kv == fp8)) continue;
        const double error_most = has_experts ? std::max(way.error_most, 0.4) : way.error_most;
        SCOPED_TRACE(std::string(kernels::name_of(way.quantize)) + ", KV cache " + kernels::name_of(way.kv));
        const auto backend = tests::make_backend(kernels::Format::bfloat16, way.quantize, way.kv);
        const auto model = engine::Model::load(weights_.path(), *backend, StepDriver::rows_max, StepDriver::rows_max);
        StepDriver driver(*model, *backend);
        double errors = 0.0;
        double squares = 0.0;
        for (const tests::GoldenCase& golden : golden_.cases) {
            Sequence sequence = driver.begin(golden.prompt);
            driver.step({&sequence}, StepDriver::rows_max);
            for (std::size_t i = 0; i < golden.logits.size(); ++i) {
                const auto vocabulary = static_cast<std::size_t>(golden_.vocabulary);
                const auto want = static_cast<double>(golden.logits[i]);
                errors += std::pow(static_cast<double>(sequence.logits[i / vocabulary][i % vocabulary]) - want, 2.0);
                squares += want * want;
            }
        }
        EXPECT_LT(std::sqrt(errors / squares), error_most);
    }
}

std::string test_name(const testing::TestParamInfo<std::string>& parameter) {
    std::string name = parameter.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}
// Apart, as a GPU runs no experts.
const std::vector<std::string> dense_checkpoints = tests::checkpoint_names(tests::BaseKind::dense);
const std::vector<std::string> checkpoints_with_experts = tests::checkpoint_names(tests::BaseKind::experts);
INSTANTIATE_TEST_SUITE_P(Families, GoldenCheckpoint, testing::ValuesIn(dense_checkpoints), test_name);
INSTANTIATE_TEST_SUITE_P(Experts, GoldenCheckpoint, testing::ValuesIn(checkpoints_with_experts), test_name);

TEST(Model, InspectModelCountsTheParametersAndNamesUnusedTensors) {
    const engine::ModelReport report = engine::inspect_model(tests::golden_folder() / "checkpoints" / "qwen3");
    const engine::Checkpoint checkpoint(tests::golden_folder() / "checkpoints" / "qwen3");
    std::int64_t elements = 0;
    for (const engine::Tensor& tensor : checkpoint.tensors()) {
        std::int64_t size = 1;
        for (const std::int64_t extent : tensor.shape) size *= extent;
        elements += size;
    }
    EXPECT_EQ(report.parameters, elements);
    EXPECT_EQ(report.embedding_parameters, report.config.vocabulary * report.config.hidden * (report.config.tied_head ? 1 : 2));
    EXPECT_THAT(report.unused_tensors, testing::IsEmpty());
}

// Pins: a head of its own was dropped where config.json ties it, and log-probabilities were off by nats. transformers unties it, too.
TEST(Model, AHeadThatDiffersFromTheEmbeddingIsUsedAlthoughTheConfigTiesIt) {
    const auto untied = tests::golden_folder() / "checkpoints" / "llama-mha";
    const tests::TempFolder folder;
    std::filesystem::copy(untied, folder.path(), std::filesystem::copy_options::recursive);
    auto config = *schema::Json::parse(tests::read_whole(untied / "config.json"));
    config.set("tie_word_embeddings", true);
    tests::write_text(folder / "config.json", config.dump());

    const auto backend = tests::float32_backend();
    const auto logits_of = [&](const std::filesystem::path& path, bool is_untied) {
        const auto model = engine::Model::load(path, *backend, StepDriver::rows_max, StepDriver::rows_max);
        EXPECT_FALSE(model->config().tied_head);
        EXPECT_EQ(model->config().head_untied, is_untied);
        StepDriver driver(*model, *backend);
        Sequence sequence = driver.begin({1, 2, 3, 4});
        driver.step({&sequence}, StepDriver::rows_max);
        return sequence.logits;
    };
    EXPECT_EQ(logits_of(folder.path(), true), logits_of(untied, false));
    const engine::ModelReport report = engine::inspect_model(folder.path());
    EXPECT_TRUE(report.config.head_untied);
    EXPECT_EQ(report.parameters, engine::inspect_model(untied).parameters);
    EXPECT_FALSE(engine::inspect_model(tests::golden_folder() / "checkpoints" / "llama-mqa-tied").config.head_untied);
}

TEST(Model, AMissingTensorAndAWrongShapeAreNamedWithBothShapes) {
    const auto folder = tests::golden_folder() / "checkpoints" / "llama-mha";
    const engine::Checkpoint checkpoint(folder);
    engine::ModelConfig config = engine::ModelConfig::load(folder);
    const auto error = [&] {
        try {
            engine::check_checkpoint(config, engine::layout_of(config), checkpoint);
        } catch (const std::runtime_error& problem) {
            return std::string(problem.what());
        }
        return std::string("accepted");
    };
    config.qk_norm = engine::QkNorm::by_head;
    EXPECT_THAT(error(), testing::HasSubstr("tensor model.layers.0.self_attn.q_norm.weight"));
    config.qk_norm = engine::QkNorm::none;
    config.intermediate += 1;
    EXPECT_THAT(error(), testing::AllOf(testing::HasSubstr("model.safetensors"), testing::HasSubstr("mlp.gate_proj.weight"),
                                        testing::HasSubstr(engine::shape_text(std::vector{config.intermediate, config.hidden})),
                                        testing::HasSubstr(engine::shape_text(std::vector{config.intermediate - 1, config.hidden}))));
    config.intermediate -= 1;
    config.tied_head = true;
    EXPECT_THAT(error(), "accepted");  // a tied model may have a copy of its head
}

}  // namespace
}  // namespace lorry
