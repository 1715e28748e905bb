// What is known about a model and its adapters before jobs run: the heads of adapters, and the memory of steps.
#include "ops/engine_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/adapter_folders.h"
#include "ops/bench/wrapped_backend.h"
#include "tests/support/golden_model.h"
#include "tests/support/seeded_model.h"
#include "tests/support/tiny_encoder.h"
#include "tests/support/tiny_model.h"

namespace lorry::ops {
namespace {

TEST(AdapterFolders, KnowTheHeadsOfAdapters) {
    const tests::TinyEncoder base("bert");
    const engine::ModelConfig config = engine::ModelConfig::load(base.model);
    const engine::ModelTexts texts(base.model);
    const auto head_of = [&](const std::string& name) {
        const tests::SeededFolder adapter(tests::golden_folder() / "encoder_adapters" / name, "adapter_model.safetensors");
        const AdapterFolders folders(adapter.path().parent_path(), "tiny", config, texts);
        const auto resolved = folders.resolve(adapter.path().filename().string(), {});
        EXPECT_EQ(resolved.kind, consumer::ModelName::Kind::adapter) << resolved.refusal;
        return resolved.head ? std::string(name_of(resolved.head->task)) + " " + std::to_string(resolved.head->labels) : "none";
    };
    EXPECT_EQ(head_of("bert-rerank"), "classify 1");
    EXPECT_EQ(head_of("bert-topics"), "classify 5");
    EXPECT_EQ(head_of("bert-ner"), "token_classify 5");
    EXPECT_EQ(head_of("bert-embed"), "none");
}

// Pins: `lorry up` listed adapters of another base model, whose first call failed.
TEST(AdapterFolders, ListThoseThatFitAndSayWhyOthersDoNot) {
    const tests::TinyModel tiny;
    const tests::TinyEncoder other("bert");
    std::filesystem::create_directories(tiny.adapters / "notes");
    std::filesystem::create_directories(tiny.adapters / ".cache");
    const auto left_out = [&](const std::filesystem::path& model) {
        const engine::ModelConfig config = engine::ModelConfig::load(model);
        const engine::ModelTexts texts(model);
        const AdapterFolders folders(tiny.adapters, "tiny", config, texts);
        std::string text;
        for (const std::string& name : folders.names()) text += name + "\n";
        for (const auto& [name, why] : folders.left_out()) text += name + ": " + why + "\n";
        return text;
    };
    EXPECT_THAT(left_out(tiny.model),
                testing::AllOf(testing::StartsWith("plain\nrank12\nbroken: adapter_model.safetensors: "), testing::HasSubstr("notes: "),
                               testing::HasSubstr("adapter_config.json"), testing::Not(testing::HasSubstr(".cache"))));
    EXPECT_THAT(left_out(other.model), testing::AllOf(testing::StartsWith("broken: "), testing::HasSubstr("\nplain: "),
                                                      testing::HasSubstr("; its config names the base model '")));
}

// The sizes of what a backend allocates.
class Allocations final : public WrappedBackend {
public:
    Allocations(std::unique_ptr<kernels::Backend> backend, std::size_t& largest) : WrappedBackend(std::move(backend)), largest_(largest) {}
    std::unique_ptr<kernels::Buffer> allocate(std::size_t bytes) override {
        largest_ = std::max(largest_, bytes);
        return WrappedBackend::allocate(bytes);
    }

private:
    std::size_t& largest_;
};

// Pins: the bias of DeBERTa's attention was allocated with the first long text, after the memory had been divided.
TEST(EngineSetup, TakesTheMemoryOfDisentangledAttentionBeforeItDividesTheRest) {
    const tests::TinyEncoder encoder("deberta-v3");
    Settings settings;
    settings.model = encoder.model.string();
    settings.threads = 1;
    std::size_t largest = 0;
    EngineSetup setup(
        settings,
        {.watch = [&](std::unique_ptr<kernels::Backend> backend) { return std::make_unique<Allocations>(std::move(backend), largest); },
         .sequence_tokens = std::nullopt});
    const engine::ModelConfig& config = setup.model().config();
    const auto bias = static_cast<std::size_t>(setup.options().step_rows_max * config.heads * config.max_positions) * sizeof(float);
    EXPECT_GE(largest, bias);
    largest = 0;
    engine::Request request;
    request.prompt.assign(static_cast<std::size_t>(setup.engine().context_max()), 5);
    request.pooling = engine::PoolingTask::embed;
    setup.engine().submit(std::move(request));
    engine::StepOutput output;
    while (setup.engine().has_work()) setup.engine().step(output);
    ASSERT_EQ(output.results.size(), 1U);
    EXPECT_LT(largest, bias / 4) << "only the result is allocated later";
}

TEST(EngineSetup, GuessesTokensWhereTheSettingSaysSo) {
    const tests::TinyModel tiny;
    const auto drafts_max = [&](const std::string& speculation, bool plain_decoding) {
        Settings settings;
        settings.model = tiny.model;
        settings.threads = 1;
        settings.speculation = speculation;
        return EngineSetup(settings, {.plain_decoding = plain_decoding}).options().drafts_max;
    };
    EXPECT_GT(drafts_max("auto", false), 0);
    EXPECT_EQ(drafts_max("auto", true), 0) << "benchmarks";
    EXPECT_GT(drafts_max("ngram", true), 0);
    EXPECT_EQ(drafts_max("off", false), 0);
}

}  // namespace
}  // namespace lorry::ops
