// check-model's findings on a tiny model, and the memory rules that it shares with run and worker.
#include "ops/program/model_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "ops/command.h"
#include "ops/engine_setup.h"
#include "ops/weight_memory.h"
#include "schema/json.h"
#include "tests/support/golden_model.h"
#include "tests/support/seeded_model.h"
#include "tests/support/tiny_encoder.h"
#include "tests/support/tiny_model.h"

namespace lorry::ops {
namespace {

TEST(ModelReport, TellsShapesMemoryAndWhichAdaptersWouldBeRefused) {
    const tests::TinyModel tiny;
    Settings settings;
    settings.model = tiny.model;
    settings.adapters = tiny.adapters;
    const ModelCheck check = check_model(settings);
    EXPECT_TRUE(check.problems.empty());
    EXPECT_TRUE(check.has_tokenizer);
    EXPECT_TRUE(check.has_chat_template);
    const engine::ModelConfig& config = check.model.config;
    const std::size_t table = static_cast<std::size_t>(config.max_positions * config.head_dim) * sizeof(float);
    const std::size_t parameters = check.weight_bytes - table;
    EXPECT_EQ(parameters, static_cast<std::size_t>(check.model.parameters) * 2);
    // int4: 4.5 bits a weight, but a byte for each of the embeddings.
    settings.quantize = "int4";
    const auto embeddings = static_cast<std::size_t>(check.model.embedding_parameters);
    EXPECT_EQ(check_model(settings).weight_bytes, table + embeddings + (parameters / 2 - embeddings) * 9 / 16);
    // fp8: embeddings stay bfloat16.
    settings.quantize = "fp8";
    EXPECT_EQ(check_model(settings).weight_bytes, table + parameters / 2 + embeddings);
    // As the cache stores them: values in whole vectors of 16; with int8, three words beside keys and values.
    const std::int64_t elements = config.head_dim + (config.head_dim + 15) / 16 * 16;
    EXPECT_EQ(check.kv_token_bytes, static_cast<std::size_t>(config.layers * config.kv_heads * elements * 2));
    settings.kv_dtype = "int8";
    EXPECT_EQ(check_model(settings).kv_token_bytes, static_cast<std::size_t>(config.layers * config.kv_heads * (elements + 12)));
    settings.kv_dtype = "fp8";  // only on a GPU: whole blocks of 16 dimensions, and one word beside each head's keys and values
    EXPECT_EQ(check_model(settings).kv_token_bytes,
              static_cast<std::size_t>(2 * config.layers * config.kv_heads * ((config.head_dim + 15) / 16 * 16 + 4)));
    ASSERT_EQ(check.adapters.size(), 3U);
    EXPECT_EQ(check.adapters[0].name, "broken");
    EXPECT_FALSE(check.adapters[0].problem.empty());
    EXPECT_EQ(check.adapters[1].info.value().rank_max, 8);
    EXPECT_EQ(check.adapters[2].info.value().rank_max, 12);
    const std::string text = show(check);
    EXPECT_NE(text.find("refused: "), std::string::npos) << text;
    const schema::Json json = json_of(check);
    EXPECT_EQ(json.find("adapters")->as_array()->size(), 3U);
    EXPECT_EQ(json.find("kv_bytes_per_1000_tokens")->as_integer(), static_cast<std::int64_t>(1000 * check.kv_token_bytes));
}

// Pins: the weights of Dense modules, which are in folders of their own, were left out.
TEST(ModelReport, CountsTheWeightsOfDenseModules) {
    const tests::TinyEncoder encoder("bert");
    Settings settings;
    settings.model = encoder.model;
    const ModelCheck before = check_model(settings);
    const std::int64_t hidden = before.model.config.hidden;
    const auto module = [](const char* type, const char* path) {
        return fmt::format(R"({{"type":"sentence_transformers.models.{}","path":"{}"}})", type, path);
    };
    tests::write_text(encoder.model / "modules.json",
                      fmt::format("[{},{},{}]", module("Transformer", ""), module("Pooling", "1_Pooling"), module("Dense", "2_Dense")));
    for (const char* name : {"1_Pooling", "2_Dense"}) std::filesystem::create_directories(encoder.model / name);
    tests::write_text(encoder.model / "1_Pooling/config.json",
                      fmt::format(R"({{"word_embedding_dimension":{},"pooling_mode_mean_tokens":true}})", hidden));
    tests::write_text(
        encoder.model / "2_Dense/config.json",
        fmt::format(R"({{"in_features":{},"out_features":100,"bias":true,"activation_function":"torch.nn.modules.linear.Identity"}})",
                    hidden));
    const ModelCheck after = check_model(settings);
    EXPECT_EQ(after.model.parameters, before.model.parameters + 100 * (hidden + 1));
    EXPECT_EQ(after.weight_bytes, before.weight_bytes + static_cast<std::size_t>(2 * 100 * (hidden + 1)));
}

TEST(ModelReport, NamesWhatIsMissingFromAFolder) {
    const tests::TinyModel tiny;
    std::filesystem::remove(tiny.model / "tokenizer.json");
    std::filesystem::remove(tiny.model / "chat_template.jinja");
    Settings settings;
    settings.model = tiny.model;
    const ModelCheck check = check_model(settings);
    ASSERT_EQ(check.problems.size(), 1U);
    EXPECT_NE(check.problems.front().find("tokenizer.json"), std::string::npos) << check.problems.front();
    EXPECT_FALSE(check.has_chat_template);
}

TEST(ModelReport, RemarksThatAHeadIsUsedAlthoughTheConfigTiesIt) {
    const tests::TinyModel tiny;
    auto config = *schema::Json::parse(tests::read_whole(tiny.model / "config.json"));
    config.set("tie_word_embeddings", true);
    tests::write_text(tiny.model / "config.json", config.dump());
    Settings settings;
    settings.model = tiny.model;
    EXPECT_THAT(check_model(settings).remarks, testing::Contains(head_untied_remark));
}

// A golden model with the tokenizer of a tiny one, whose first tokens it has.
class GoldenWithTokenizer {
public:
    explicit GoldenWithTokenizer(const std::string& name) : weights_(tests::golden_folder() / name) {
        const tests::TinyModel tiny;
        for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
            std::filesystem::copy_file(tiny.model / file, weights_.path() / file);
        settings.model = weights_.path();
        settings.device = "cpu";
        settings.threads = 1;
    }
    Settings settings;

private:
    tests::GoldenFolder weights_;
};

// What does not depend on the machine, as docs/models.md shows it.
std::string lines_of_folder(const std::string& name) {
    const GoldenWithTokenizer golden(name);
    std::istringstream lines(show(check_model(golden.settings)));
    std::string text = fmt::format("    $ lorry check-model --model {}\n", std::filesystem::path(name).filename().string());
    bool is_shown = false;
    for (std::string line; std::getline(lines, line);) {
        is_shown = is_shown || line.starts_with("family");
        if (!is_shown) continue;
        text += "    " + line + "\n";
        if (line.starts_with("stored as")) return text;
    }
    ADD_FAILURE() << name << ": check-model does not say how weights are stored";
    return text;
}

TEST(ModelReport, OfTenFoldersIsWhatTheDocumentShows) {
    const std::string document = tests::read_whole(std::filesystem::path(LORRY_SOURCE_DIR) / "docs" / "models.md");
    for (const char* name :
         {"checkpoints/gemma2", "checkpoints/gemma3-nested", "checkpoints/phi3-longrope", "checkpoints/smollm3", "checkpoints/olmo2",
          "checkpoints/gpt-neox", "checkpoints/cohere2", "checkpoints/qwen2-moe", "quantized/gptq-fused", "quantized/experts-mxfp4"}) {
        const std::string text = lines_of_folder(name);
        EXPECT_TRUE(document.find(text) != std::string::npos) << "docs/models.md has drifted; it must have\n" << text;
    }
}

// Pins: the JSON said "storage": "bfloat16" of codes, and nothing of their format.
TEST(ModelReport, SaysInWhichFormatCodesAreAndWhatTheyTake) {
    const GoldenWithTokenizer golden("quantized/gptq");
    const ModelCheck check = check_model(golden.settings);
    EXPECT_TRUE(check.problems.empty());
    // 14 modules: 36,864 weights of half a byte, and for each output of each group of 16 inputs a scale of 2 bytes and a zero point.
    EXPECT_EQ(check.model.coded_parameters, 36'864);
    EXPECT_EQ(check.model.coded_bytes, std::size_t{36'864 / 2 + 36'864 / 16 * 3});
    EXPECT_THAT(show(check),
                testing::HasSubstr("GPTQ, 4 bits, groups of 16: 36,864 parameters in 25 KiB of codes and scales; the rest in"));
    const schema::Json json = json_of(check);
    EXPECT_EQ(*json.find("quantization")->as_string(), "GPTQ, 4 bits, groups of 16");
    EXPECT_EQ(json.find("coded_parameters")->as_integer(), check.model.coded_parameters);
    EXPECT_EQ(json.find("coded_bytes")->as_integer(), static_cast<std::int64_t>(check.model.coded_bytes));
    EXPECT_EQ(json.find("weight_bytes")->as_integer(), static_cast<std::int64_t>(check.weight_bytes));
    // Loaded weights are in whole panels, which such small ones do not fill.
    EngineSetup setup(golden.settings);
    EXPECT_GE(setup.model().weight_bytes(), check.weight_bytes);
    EXPECT_LE(setup.model().weight_bytes(), check.weight_bytes * 5 / 4);
    EXPECT_THAT(setup.describe(), testing::HasSubstr(": GPTQ, 4 bits, groups of 16; the rest in bfloat16"));
    const tests::TinyModel plain;
    Settings settings;
    settings.model = plain.model;
    EXPECT_EQ(json_of(check_model(settings)).find("quantization"), nullptr);
}

TEST(ModelReport, CodesAreNotQuantizedAgain) {
    const GoldenWithTokenizer golden("quantized/awq");
    for (const char* quantize : {"int8", "int4", "fp8"}) {
        Settings settings = golden.settings;
        settings.quantize = quantize;
        const std::string message =
            fmt::format("--quantize {}: the checkpoint is quantized already (AWQ, 4 bits, groups of 16); leave --quantize out", quantize);
        EXPECT_THAT([&] { check_model(settings); }, testing::ThrowsMessage<UsageError>(message));
        if (std::string_view(quantize) == "fp8") continue;  // which a CPU does not have at all
        EXPECT_THAT([&] { EngineSetup setup(settings); }, testing::ThrowsMessage<UsageError>(message));
    }
}

TEST(ModelReport, SaysWhichPartsOfAMultimodalModelAreLeftOut) {
    const GoldenWithTokenizer golden("checkpoints/gemma3-nested");
    const ModelCheck check = check_model(golden.settings);
    EXPECT_THAT(check.remarks, testing::Contains("vision_config" + std::string(part_skipped_remark)));
    EXPECT_THAT(show(check), testing::HasSubstr("note: vision_config describes a part of the model that Lorry does not run"));
    EXPECT_THAT(EngineSetup(golden.settings).describe(),
                testing::ContainsRegex("warning +vision_config describes a part of the model that Lorry does not run"));
}

// Pins: the adapter in such a folder, which transformers applies, was left out without a word.
TEST(ModelReport, SaysThatAnAdapterBesideTheModelIsNotApplied) {
    const GoldenWithTokenizer golden("checkpoints/granite");
    EXPECT_THAT(EngineSetup(golden.settings).describe(), testing::Not(testing::HasSubstr("adapter_config.json")));
    tests::write_text(golden.settings.model + "/adapter_config.json", "{}");
    EXPECT_THAT(check_model(golden.settings).remarks, testing::Contains(adapter_beside_remark));
    EXPECT_THAT(EngineSetup(golden.settings).describe(), testing::ContainsRegex("warning +the folder also has an adapter_config.json"));
}

// Pins: a bias that config.json does not know of was left out without a word, as a third of the layers would have been.
TEST(ModelReport, SaysWhichTensorsAreNotUsed) {
    const GoldenWithTokenizer golden("checkpoints/granite");
    auto config = *schema::Json::parse(tests::read_whole(golden.settings.model + "/config.json"));
    EXPECT_THAT(EngineSetup(golden.settings).describe(), testing::Not(testing::HasSubstr("not used")));
    config.set("attention_bias", false);
    tests::write_text(golden.settings.model + "/config.json", config.dump());
    const std::string remark = "tensors that are not used: model.layers.0.self_attn.k_proj.bias, model.layers.0.self_attn.o_proj.bias, ";
    const std::string advice =
        "config.json has no bias for the module of model.layers.0.self_attn.k_proj.bias, so that it is left out, as in transformers: check "
        "config.json";
    EXPECT_THAT(check_model(golden.settings).remarks,
                testing::Contains(testing::AllOf(testing::StartsWith(remark), testing::EndsWith(advice))));
    EXPECT_THAT(EngineSetup(golden.settings).describe(), testing::AllOf(testing::HasSubstr(remark), testing::HasSubstr(advice)));
    config.set("num_hidden_layers", 1);
    config.set("attention_bias", true);
    tests::write_text(golden.settings.model + "/config.json", config.dump());
    EXPECT_EQ(check_model(golden.settings).remarks.back().find("has no bias"), std::string::npos);
}

engine::ModelReport one_layer_of(std::int64_t positions) {
    engine::ModelReport model;
    model.config.layers = 1;
    model.config.kv_heads = 1;
    model.config.head_dim = 64;
    model.config.max_positions = positions;
    model.config.rope.kind = engine::RopeConfig::Kind::standard;
    return model;
}

// Pins: the context was limited by the machine's memory alone. For a small cache, check-model said that a model was fine whose table of
// positions then took gigabytes.
TEST(ModelReport, LimitsTheContextToWhatTheCacheHoldsAsRunDoes) {
    const tests::TinyModel tiny;
    schema::Json config = schema::Json::parse(tests::read_whole(tiny.model / "config.json")).value();
    config.set("max_position_embeddings", 1 << 28);
    config.set("rope_scaling", schema::Json::object({{"rope_type", "linear"}, {"factor", 1.0}}));
    tests::write_text(tiny.model / "config.json", config.dump());
    Settings settings;
    settings.model = tiny.model;
    settings.device = "cpu";
    settings.kv_memory = Bytes{1 << 20};
    const ModelCheck check = check_model(settings);
    EXPECT_TRUE(check.problems.empty());
    const engine::ModelConfig& checked = check.model.config;
    EXPECT_EQ(checked.max_positions, static_cast<std::int64_t>((1 << 20) / check.kv_token_bytes));
    EXPECT_THAT(show(check), testing::HasSubstr("the context is limited to"));
    EngineSetup setup(settings);
    EXPECT_EQ(setup.model().config().max_positions, checked.max_positions);
    EXPECT_LE(setup.engine().context_max(), checked.max_positions);
    EXPECT_LT(setup.model().weight_bytes(), check.weight_bytes + (1 << 20));
}

TEST(ModelReport, WeighsTheTableOfPositions) {
    constexpr std::size_t row_bytes = 64 * sizeof(float);
    Settings settings;
    settings.kv_memory = Bytes{std::size_t{1} << 30};
    engine::ModelReport model = one_layer_of(1 << 28);
    constexpr FreeMemory memory{.bytes = std::size_t{2} << 30};
    // A cache of the setting's size.
    EXPECT_EQ(fit_to_memory(settings, memory, 256, model), (std::size_t{1} << 22) * row_bytes);
    EXPECT_EQ(model.config.max_positions, 1 << 22);
    model = one_layer_of(1024);
    EXPECT_EQ(fit_to_memory(settings, memory, 256, model), 1024 * row_bytes);
    EXPECT_EQ(model.config.max_positions, 1024);
    // Without the setting, table and cache share half of what the weights leave free.
    settings.kv_memory.reset();
    model = one_layer_of(1 << 28);
    model.parameters = std::int64_t{1} << 29;  // 1 GiB
    EXPECT_EQ(fit_to_memory(settings, memory, 256, model), (std::size_t{1} << 30) + (std::size_t{1} << 20) * row_bytes);
    EXPECT_EQ(model.config.max_positions, 1 << 20);
    // Learned positions are weights.
    model = one_layer_of(1 << 28);
    model.config.rope.kind = engine::RopeConfig::Kind::none;
    EXPECT_EQ(fit_to_memory(settings, memory, 256, model), 0U);
    EXPECT_EQ(model.config.max_positions, 1 << 28);
    EXPECT_FALSE(weights_obstacle(10'000, 10'000));
    EXPECT_THAT(weights_obstacle(3 << 20, 1 << 20).value(), testing::HasSubstr("the table of positions need 3.0 MiB"));
}

// Pins: a link to a device was read until memory ran out.
TEST(ModelReport, RefusesFilesThatAreNotRegular) {
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
        const tests::TinyModel tiny;
        std::filesystem::remove(tiny.model / name);
        std::filesystem::create_symlink("/dev/zero", tiny.model / name);
        Settings settings;
        settings.model = tiny.model;
        const ModelCheck check = check_model(settings);
        ASSERT_FALSE(check.problems.empty()) << name;
        EXPECT_NE(check.problems.front().find("is a device; it must be a regular file"), std::string::npos) << check.problems.front();
    }
}

TEST(MemoryPlan, GivesTheCacheWhatTheBatchCanUseAndNeverMoreThanHalf) {
    constexpr std::size_t gibibyte = std::size_t{1} << 30;
    Settings settings;
    settings.max_batch = 4;
    EXPECT_EQ(plan_memory(settings, 16 * gibibyte, 1000, 1024).kv_bytes, std::size_t{4 * 1024 * 1000});
    EXPECT_EQ(plan_memory(settings, 16 * gibibyte, 1 << 20, 131072).kv_bytes, 8 * gibibyte);
    EXPECT_EQ(plan_memory(settings, 8 * gibibyte, 1000, 1024).adapter_bytes, gibibyte);
    EXPECT_EQ(plan_memory(settings, 64 * gibibyte, 1000, 1024).adapter_bytes, 2 * gibibyte);
    EXPECT_EQ(plan_memory(settings, 64 * gibibyte, 1 << 20, 131072, MemoryOf::device).kv_bytes, 58 * gibibyte);
    settings.kv_memory = Bytes{12345};
    settings.adapter_memory = Bytes{678};
    EXPECT_EQ(plan_memory(settings, gibibyte, 1000, 1024).kv_bytes, 12345U);
    EXPECT_EQ(plan_memory(settings, gibibyte, 1000, 1024).adapter_bytes, 678U);
}

TEST(BaseName, IsTheFolderSNameUnlessItIsSet) {
    Settings settings;
    settings.model = "models/llama/";
    EXPECT_EQ(base_name_of(settings), "llama");
    settings.model = "/a/b/../mistral";
    EXPECT_EQ(base_name_of(settings), "mistral");
    settings.base_name = "given";
    EXPECT_EQ(base_name_of(settings), "given");
}

}  // namespace
}  // namespace lorry::ops
