// Golden adapters give the same logits and greedy tokens as PEFT, alone and in one batch. Broken adapters are refused with good messages.
#include "engine/model/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>

#include <fmt/format.h>

#include "engine/model/model.h"
#include "schema/json.h"
#include "tests/support/golden_model.h"
#include "tests/support/labels.h"
#include "tests/support/seeded_model.h"
#include "tests/support/temp_folder.h"

namespace lorry {
namespace {

using engine::Adapter;
using tests::Golden;
using tests::Sequence;
using tests::StepDriver;

// The one that exists of such folders.
std::filesystem::path folder_among(std::initializer_list<const char*> kinds, const std::string& name) {
    const auto folder_of = [&](const char* kind) { return tests::golden_folder() / kind / name; };
    const auto found = std::ranges::find_if(kinds, [&](const char* kind) { return std::filesystem::exists(folder_of(kind)); });
    return folder_of(found == kinds.end() ? *kinds.begin() : *found);
}
std::filesystem::path adapter_folder(const std::string& name) { return folder_among({"adapters", "encoder_adapters"}, name); }
std::filesystem::path checkpoint_folder(const std::string& name) { return folder_among({"checkpoints", "quantized", "encoders"}, name); }

std::string all_words(const std::string& message, const std::vector<std::string>& words) {
    for (const std::string& word : words) {
        if (message.find(word) == message.npos) return message + " <- lacks " + word;
    }
    return "";
}

struct LoadedModel {
    explicit LoadedModel(const std::string& base)
        : folder(checkpoint_folder(base)),
          backend(tests::float32_backend()),
          model(engine::Model::load(folder.path(), *backend, StepDriver::rows_max, StepDriver::rows_max)) {}
    tests::GoldenFolder folder;
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<engine::Model> model;
};

class GoldenAdapter : public testing::TestWithParam<std::string> {
protected:
    const tests::GoldenFolder folder_{adapter_folder(GetParam())};
};

TEST_P(GoldenAdapter, GivesTheLogitsAndGreedyTokensOfPeft) {
    const Golden golden = tests::read_golden(adapter_folder(GetParam()));
    const LoadedModel base(golden.base);
    const auto adapter = tests::load_adapter(folder_.path(), *base.model, *base.backend);
    if (!adapter && !golden.may_refuse.empty()) {
        EXPECT_EQ(all_words(adapter.error().reason, golden.may_refuse), "");
        return;
    }
    ASSERT_TRUE(adapter.has_value()) << adapter.error().reason;
    StepDriver driver(*base.model, *base.backend);
    float largest = 0.0F;
    for (std::size_t i = 0; i < golden.cases.size(); ++i) {
        SCOPED_TRACE("case " + std::to_string(i));
        Sequence sequence = driver.begin(golden.cases[i].prompt, adapter->get());
        driver.generate({&sequence}, static_cast<std::int64_t>(golden.cases[i].greedy.size()));
        std::vector<float> logits;
        for (std::size_t row = 0; row < golden.cases[i].prompt.size(); ++row) {
            logits.insert(logits.end(), sequence.logits[row].begin(), sequence.logits[row].end());
        }
        EXPECT_EQ(tests::difference(logits, golden.cases[i].logits, 1e-4F), "");
        EXPECT_EQ(tests::difference(sequence.logits.back(), golden.cases[i].last, 1e-4F), "");
        for (std::size_t j = 0; j < logits.size(); ++j) largest = std::max(largest, std::abs(logits[j] - golden.cases[i].logits[j]));
        EXPECT_THAT(std::span(sequence.tokens).subspan(golden.cases[i].prompt.size()), testing::ElementsAreArray(golden.cases[i].greedy));
    }
    RecordProperty("largest_difference", fmt::format("{:.1e}", largest));  // as GoldenCheckpoint's
}

TEST_P(GoldenAdapter, IsInspectedAsItIsLoaded) {
    const Golden golden = tests::read_golden(adapter_folder(GetParam()));
    const LoadedModel base(golden.base);
    const auto adapter = tests::load_adapter(folder_.path(), *base.model, *base.backend);
    const auto info = engine::inspect_adapter(folder_.path(), base.model->config());
    ASSERT_EQ(adapter.has_value(), info.has_value());
    if (!info) return;
    EXPECT_EQ(info->hash, (*adapter)->info().hash);
    EXPECT_EQ(info->hash.size(), 32U);
    EXPECT_EQ(info->bytes, (*adapter)->info().bytes);
    EXPECT_EQ(info->rank_max, (*adapter)->info().rank_max);
    EXPECT_EQ(info->targets, (*adapter)->info().targets);
    EXPECT_EQ(info->vocabulary, (*adapter)->info().vocabulary);
    EXPECT_EQ(info->vocabulary.value_or(base.model->config().vocabulary), golden.vocabulary);
}

// Pins: packing uses exactly the bytes that were measured for the slot, and an adapter in a slot computes the same.
TEST_P(GoldenAdapter, FitsIntoItsSlotToTheByteAndAnswersAlikeFromThere) {
    const Golden golden = tests::read_golden(adapter_folder(GetParam()));
    const LoadedModel base(golden.base);
    const auto files = engine::AdapterFiles::read(folder_.path(), "", *base.model);
    if (!files) return;  // each refusal has its own test
    const std::size_t bytes = (*files)->slot_bytes(*base.backend);
    EXPECT_GT(bytes, 0U);
    const auto memory = base.backend->make_kv_cache(base.model->kv_shape(), 1, 2 * bytes);
    const std::size_t begin = memory->slots().begin + bytes;
    const auto slot = base.backend->make_slot(*memory, {begin, begin + bytes});
    const auto in_slot = (*files)->pack(*slot);
    EXPECT_EQ(kernels::slot_aligned(slot->used()), bytes);
    const auto apart = (*files)->pack(*base.backend);
    StepDriver driver(*base.model, *base.backend);
    std::vector<Sequence> sequences;
    for (const Adapter* adapter : {in_slot.get(), apart.get()}) {
        Sequence& sequence = sequences.emplace_back(driver.begin(golden.cases.front().prompt, adapter));
        driver.generate({&sequence}, 8);
    }
    EXPECT_EQ(sequences.front().logits, sequences.back().logits);
}

// Pins: an adapter of a multimodal model that an older version of transformers named.
TEST(Adapter, OlderNamesOfModulesAreThoseOfToday) {
    const LoadedModel base("gemma3-nested");
    const tests::GoldenFolder today(adapter_folder("gemma3-nested-text"));
    const tests::TempFolder older;
    std::filesystem::copy(today.path(), older.path(), std::filesystem::copy_options::recursive);
    const auto file = older.path() / "adapter_model.safetensors";
    std::string bytes = *engine::read_text(file);
    const std::string name = "model.model.language_model.";
    for (std::size_t at = bytes.find(name); at != std::string::npos; at = bytes.find(name, at + name.size()))
        bytes.replace(at, name.size(), "model.language_model.model.");
    tests::write_text(file, bytes);
    std::vector<Sequence> sequences;
    StepDriver driver(*base.model, *base.backend);
    for (const auto& folder : {today.path(), older.path()}) {
        SCOPED_TRACE(folder);
        EXPECT_TRUE(engine::inspect_adapter(folder, base.model->config()));
        const auto adapter = tests::load_adapter(folder, *base.model, *base.backend);
        ASSERT_TRUE(adapter) << adapter.error().reason;
        Sequence& sequence = sequences.emplace_back(driver.begin({1, 2, 3}, adapter->get()));
        driver.generate({&sequence}, 8);
    }
    EXPECT_EQ(sequences.front().logits, sequences.back().logits);
}

const tests::Labelled gpu_adapters{"Peft/GoldenAdapter.*", {tests::Label::on_cuda}};
const tests::Labelled gpu_adapters_with_asan{"Peft/GoldenAdapter.Gives*", {tests::Label::asan_cuda}};
// Pins: the pool, the splits of the work and the order of sums on machines with many cores; here most threads wait for a core.
TEST(Adapter, ManyThreadsGiveTheBitsOfOne) {
    const std::string name = "all-linear";
    const Golden golden = tests::read_golden(adapter_folder(name));
    const kernels::StorageOptions bfloat16{.weights = kernels::Format::bfloat16};
    kernels::StorageOptions int8 = bfloat16;
    int8.quantize = kernels::Quantization::int8;
    int8.kv = kernels::KvFormat::int8;
    for (const kernels::StorageOptions& storage : {bfloat16, int8}) {
        const auto logits_of = [&](int threads) {
            const auto backend = kernels::make_cpu_backend({.threads = threads, .isa = {}, .storage = storage});
            const auto model = engine::Model::load(checkpoint_folder(golden.base), *backend, StepDriver::rows_max, StepDriver::rows_max);
            const auto adapter = tests::load_adapter(adapter_folder(name), *model, *backend);
            StepDriver driver(*model, *backend);
            std::vector<Sequence> sequences;
            for (const tests::GoldenCase& one : golden.cases) {
                sequences.push_back(driver.begin(one.prompt));
                sequences.push_back(driver.begin(one.prompt, adapter->get()));
            }
            std::vector<Sequence*> batch;
            for (Sequence& sequence : sequences) batch.push_back(&sequence);
            driver.generate(batch, 4);
            std::vector<std::vector<std::vector<float>>> logits;
            for (Sequence& sequence : sequences) logits.push_back(std::move(sequence.logits));
            return logits;
        };
        const auto alone = logits_of(1);
        for (const int threads : {16, 64, 192}) EXPECT_EQ(logits_of(threads), alone) << threads << " threads";
    }
}

std::string adapter_test_name(const testing::TestParamInfo<std::string>& parameter) {
    std::string name = parameter.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}
bool changes_embedding(const std::string& name) {
    return name.ends_with("-embedding") || name.ends_with("-tokens") || name.ends_with("-tied-trained") || name.ends_with("-both") ||
           name == "embedding" || name == "resized-plain";
}
std::vector<std::string> adapters_of_dense(bool with_embedding) {
    std::vector<std::string> names = tests::adapter_names(tests::BaseKind::dense);
    std::erase_if(names, [&](const std::string& name) { return changes_embedding(name) != with_embedding; });
    return names;
}
// Apart, as a GPU runs only the first.
const std::vector<std::string> plain_adapters = adapters_of_dense(false);
const std::vector<std::string> adapters_of_embeddings = adapters_of_dense(true);
const std::vector<std::string> adapters_of_experts = tests::adapter_names(tests::BaseKind::experts);
const std::vector<std::string> adapters_of_quantized = tests::adapter_names(tests::BaseKind::quantized);
// Below, all of them run together, with the same ops.
const tests::Labelled alone_without_tsan{"*/GoldenAdapter.*", {tests::Label::not_tsan}};
INSTANTIATE_TEST_SUITE_P(Peft, GoldenAdapter, testing::ValuesIn(plain_adapters), adapter_test_name);
INSTANTIATE_TEST_SUITE_P(Experts, GoldenAdapter, testing::ValuesIn(adapters_of_experts), adapter_test_name);
INSTANTIATE_TEST_SUITE_P(Quantized, GoldenAdapter, testing::ValuesIn(adapters_of_quantized), adapter_test_name);
INSTANTIATE_TEST_SUITE_P(Embeddings, GoldenAdapter, testing::ValuesIn(adapters_of_embeddings), adapter_test_name);

// Pins the row groups: all ranks, targets, replaced modules and base rows in one launch give the same bits as alone.
TEST(Adapter, AllAdaptersOfABaseAndPlainRowsRunInOneBatchAsAlone) {
    std::map<std::string, std::vector<std::string>> by_base;
    for (const std::string& name : tests::golden_names("adapters")) by_base[tests::read_golden(adapter_folder(name)).base].push_back(name);
    for (const auto& [base_name, names] : by_base) {
        SCOPED_TRACE(base_name);
        const LoadedModel base(base_name);
        StepDriver one_by_one(*base.model, *base.backend);
        StepDriver batched(*base.model, *base.backend, StepDriver::Samples::where_tokens_end);
        std::vector<std::unique_ptr<Adapter>> adapters;
        std::vector<Golden> goldens = {tests::read_golden(checkpoint_folder(base_name))};
        std::vector<Sequence> alone;
        std::vector<Sequence> together;
        std::vector<Sequence*> batch;
        std::vector<const tests::GoldenCase*> cases;
        for (const std::string& name : names) {
            auto adapter = tests::load_adapter(tests::GoldenFolder(adapter_folder(name)).path(), *base.model, *base.backend);
            if (!adapter) continue;  // each refusal has its own test
            adapters.push_back(std::move(*adapter));
            goldens.push_back(tests::read_golden(adapter_folder(name)));
        }
        for (std::size_t i = 0; i < goldens.size(); ++i) {
            for (const tests::GoldenCase& golden : goldens[i].cases) {
                const Adapter* adapter = i == 0 ? nullptr : adapters[i - 1].get();
                alone.push_back(one_by_one.begin(golden.prompt, adapter));
                together.push_back(batched.begin(golden.prompt, adapter));
                cases.push_back(&golden);
            }
        }
        for (Sequence& sequence : alone) one_by_one.generate({&sequence}, 64);
        for (Sequence& sequence : together) batch.push_back(&sequence);
        batched.generate(batch, 64, 7);
        for (std::size_t i = 0; i < alone.size(); ++i) {
            EXPECT_THAT(std::span(together[i].tokens).subspan(cases[i]->prompt.size()), testing::ElementsAreArray(cases[i]->greedy)) << i;
            alone[i].logits.erase(alone[i].logits.begin(), alone[i].logits.begin() + alone[i].prompt_tokens - 1);
            EXPECT_EQ(together[i].logits, alone[i].logits) << i;
        }
    }
}

class RefusedAdapter : public testing::TestWithParam<std::string> {};

TEST_P(RefusedAdapter, IsRefusedWithTheWordsThatHelp) {
    const auto folder = tests::golden_folder() / "refused_adapters" / GetParam();
    std::ifstream file(folder / "expected.json");
    const auto expected = schema::Json::parse(std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>()));
    ASSERT_TRUE(expected.has_value());
    const LoadedModel base(*expected->find("base")->as_string());
    const auto info = engine::inspect_adapter(folder, base.model->config());
    const auto adapter = tests::load_adapter(folder, *base.model, *base.backend);
    if (expected->find("accepted") != nullptr) {
        EXPECT_TRUE(info.has_value()) << info.error();
        EXPECT_TRUE(adapter.has_value()) << adapter.error().reason;
        return;
    }
    std::vector<std::string> words;
    for (const auto& word : *expected->find("error_contains")->as_array()) words.push_back(*word.as_string());
    ASSERT_FALSE(adapter.has_value());
    EXPECT_EQ(all_words(adapter.error().reason, words), "");
    ASSERT_FALSE(info.has_value());
    EXPECT_EQ(info.error(), adapter.error().reason);
}

INSTANTIATE_TEST_SUITE_P(Broken, RefusedAdapter, testing::ValuesIn(tests::golden_names("refused_adapters")), [](const auto& parameter) {
    std::string name = parameter.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

// Adds a tensor of bfloat16 or float32 at the end of a safetensors file.
void add_tensor(const std::filesystem::path& file, const engine::Tensor& tensor, const std::string& name,
                std::span<const std::byte> bytes) {
    std::ifstream in(file, std::ios::binary);
    const std::string before((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, before.data(), sizeof header_bytes);
    schema::Json header = schema::Json::parse(before.substr(8, header_bytes)).value();
    const std::string data = before.substr(8 + header_bytes);
    schema::Json shape = schema::Json::Array();
    for (const std::int64_t size : tensor.shape) shape.push(size);
    header.set(name, schema::Json::object({{"dtype", tensor.dtype},
                                           {"shape", std::move(shape)},
                                           {"data_offsets", schema::Json::array({data.size(), data.size() + bytes.size()})}}));
    const std::string text = header.dump();
    header_bytes = text.size();
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
    out << text << data;
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// PEFT stores these copies when it finds that the embedding was resized, or when it is asked to. The golden adapters trained-… have copies
// that were trained.
TEST(Adapter, ACopyOfTheBasesHeadBesideItsUpdateAndOneOfTwoThatAreTiedAreAcceptedIfEqual) {
    struct Case {
        std::string base;
        std::string adapter;
        std::string path;
        std::string words;  // of the refusal
    };
    for (const auto& [base_name, adapter_name, path, words] :
         {Case{"llama-gqa-linear", "lm-head", "lm_head", "lm_head.weight differs"},
          Case{"qwen2", "qwen2-tied-lm-head", "model.embed_tokens", "an embedding and a head that differ"}}) {
        SCOPED_TRACE(base_name + " " + path);
        const LoadedModel base(base_name);
        const engine::Tensor& own = *base.model->checkpoint().find(path + ".weight", base.model->layout().prefix);
        std::vector<std::byte> bytes(own.bytes.begin(), own.bytes.end());
        for (const bool is_equal : {true, false}) {
            const tests::TempFolder folder;
            std::filesystem::copy(adapter_folder(adapter_name), folder.path(), std::filesystem::copy_options::recursive);
            if (!is_equal) bytes[bytes.size() / 2 + 1] ^= std::byte{1};
            add_tensor(folder / "adapter_model.safetensors", own, "base_model.model." + path + ".weight", bytes);
            const auto adapter = tests::load_adapter(folder.path(), *base.model, *base.backend);
            EXPECT_EQ(adapter.has_value(), is_equal) << (adapter ? "" : adapter.error().reason);
            EXPECT_TRUE(is_equal || adapter.error().reason.find(words) != std::string::npos);
            EXPECT_TRUE(is_equal || adapter.error().reason.find("merge_and_unload") != std::string::npos);
        }
    }
}

TEST(Adapter, ChangesOfTheEmbeddingAreRefusedOnAGpu) {
    const auto backend = tests::make_backend(kernels::Format::bfloat16, kernels::Quantization::fp8);
    for (const std::string name : {"embedding", "smollm3-tokens", "phi3-saved-embedding", "trained-embedding", "resized-plain"}) {
        const tests::GoldenFolder base(checkpoint_folder(tests::read_golden(adapter_folder(name)).base));
        const auto model = engine::Model::load(base.path(), *backend, StepDriver::rows_max, StepDriver::rows_max);
        const auto adapter = tests::load_adapter(tests::GoldenFolder(adapter_folder(name)).path(), *model, *backend);
        ASSERT_FALSE(adapter.has_value());
        EXPECT_THAT(adapter.error().reason,
                    testing::HasSubstr("changes model.embed_tokens, for which a GPU has no kernels yet; use --device cpu"));
    }
}

// A copy of a golden adapter's folder.
class AdapterCopy {
public:
    explicit AdapterCopy(const std::string& name) {
        const tests::GoldenFolder golden(adapter_folder(name));
        std::filesystem::copy(golden.path(), folder_.path(), std::filesystem::copy_options::recursive);
    }
    const std::filesystem::path& path() const { return folder_.path(); }
    void add(const engine::Tensor& tensor, const std::string& name, std::span<const std::byte> bytes) const {
        add_tensor(folder_ / "adapter_model.safetensors", tensor, "base_model.model." + name, bytes);
    }
    // A tensor like this one with other rows, all zeros.
    void add_zeros(engine::Tensor like, std::int64_t rows, const std::string& name) const {
        const std::size_t row_bytes = like.bytes.size() / static_cast<std::size_t>(like.shape[0]);
        like.shape[0] = rows;
        add(like, name, std::vector<std::byte>(static_cast<std::size_t>(rows) * row_bytes));
    }
    void set(const std::string& key, schema::Json value) const {
        schema::Json config = schema::Json::parse(tests::read_whole(folder_ / "adapter_config.json")).value();
        config.set(key, std::move(value));
        tests::write_text(folder_ / "adapter_config.json", config.dump());
    }
    // Why it is refused, also by an inspection; empty: it is not.
    std::string refusal(const LoadedModel& base) const {
        const auto adapter = tests::load_adapter(path(), *base.model, *base.backend);
        const auto info = engine::inspect_adapter(path(), base.model->config());
        EXPECT_EQ(info ? "" : info.error(), adapter ? "" : adapter.error().reason);
        return adapter ? "" : adapter.error().reason;
    }

private:
    tests::TempFolder folder_;
};

const engine::Tensor& base_tensor(const LoadedModel& base, const std::string& name) {
    return *base.model->checkpoint().find(name, base.model->layout().prefix);
}

// Pins: of added tokens the base has no rows, so that answers would be made of nothing.
TEST(Adapter, TokensWithoutRowsInBothTheEmbeddingAndTheHeadAreRefused) {
    const LoadedModel base("llama-gqa-linear");
    const std::string embedding = "model.embed_tokens.weight";
    const std::string head = "lm_head.weight";
    for (const auto& [there, lacking] : {std::pair(embedding, "lm_head"), std::pair(head, "model.embed_tokens")}) {
        const AdapterCopy one("plain");
        one.add_zeros(base_tensor(base, there), 133, there);
        EXPECT_EQ(one.refusal(base),
                  fmt::format("adapter_model.safetensors: the adapter has 133 tokens and this model 131, but there is no "
                              "tensor of {} with rows for all of them; if tokens were added, save the embedding and the "
                              "head with the adapter (save_pretrained with save_embedding_layers=True), or merge it into "
                              "the base model (merge_and_unload)",
                              lacking));
    }
    const AdapterCopy unlike("plain");
    unlike.add_zeros(base_tensor(base, embedding), 133, embedding);
    unlike.add_zeros(base_tensor(base, head), 134, head);
    EXPECT_THAT(unlike.refusal(base), testing::AllOf(testing::HasSubstr("lm_head.weight has shape [134, 60]"),
                                                     testing::HasSubstr("as another tensor has 133 tokens")));
    const AdapterCopy large("plain");
    large.add_zeros(base_tensor(base, embedding), 131 + (1 << 16) + 1, embedding);
    EXPECT_THAT(large.refusal(base), testing::HasSubstr("the adapter has 65668 tokens and this model 131; supported are 1 to 65667"));
}

TEST(Adapter, FewerTokensThanTheBaseNeedNoRows) {
    const LoadedModel base("llama-gqa-linear");
    const AdapterCopy cut("plain");
    cut.add_zeros(base_tensor(base, "lm_head.weight"), 100, "lm_head.weight");
    EXPECT_EQ(cut.refusal(base), "");
    EXPECT_EQ(engine::inspect_adapter(cut.path(), base.model->config())->vocabulary, 100);
    EXPECT_EQ(engine::inspect_adapter(adapter_folder("plain"), base.model->config())->vocabulary, std::nullopt);
}

TEST(Adapter, WhatCannotBeResizedIsRefused) {
    const LoadedModel base("llama-gqa-linear");
    const engine::Tensor& vector = base_tensor(base, "model.norm.weight");
    const auto with = [&](const char* key, const char* name) {
        const AdapterCopy copy("shrunk-lm-head");
        copy.set(key, true);
        for (const int layer : {0, 1}) copy.add_zeros(vector, 72, fmt::format("model.layers.{}.self_attn.q_proj.{}", layer, name));
        copy.add_zeros(vector, 120, fmt::format("lm_head.{}", name));
        return copy.refusal(base);
    };
    EXPECT_THAT(with("use_dora", "lora_magnitude_vector"), testing::HasSubstr("not supported for use_dora of the embedding or the head"));
    EXPECT_THAT(with("lora_bias", "lora_B.bias"), testing::HasSubstr("not supported for lora_bias of the head: merge it"));
    const LoadedModel masked("bert-mlm");
    const AdapterCopy copy("bert-embed");
    copy.set("target_modules", schema::Json::array({"word_embeddings"}));
    copy.set("r", 1);
    tests::write_text(copy.path() / "adapter_model.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
    engine::Tensor rows = base_tensor(masked, "bert.embeddings.word_embeddings.weight");
    const std::vector<std::byte> zeros(50 * sizeof(float));
    for (const auto& [name, shape] : {std::pair("A", std::vector<std::int64_t>{1, 50}), std::pair("B", std::vector<std::int64_t>{24, 1})}) {
        rows.shape = shape;
        const std::size_t bytes = static_cast<std::size_t>(shape[0] * shape[1]) * sizeof(float);
        copy.add(rows, fmt::format("bert.embeddings.word_embeddings.lora_embedding_{}", name), std::span(zeros).first(bytes));
    }
    EXPECT_THAT(copy.refusal(masked), testing::HasSubstr("the adapter has 50 tokens and this model 53, which is not supported for models "
                                                         "whose head has a bias"));
}

// Pins: a table of 128,000 tokens takes half a gigabyte, and only some of its rows were added.
TEST(Adapter, OfACopyWithAddedTokensOnlyTheseTakeMemory) {
    const LoadedModel base("llama-gqa-linear");
    const auto bytes = [&](const std::string& name) {
        return engine::AdapterFiles::read(adapter_folder(name), "", *base.model).value()->slot_bytes(*base.backend);
    };
    const std::size_t table = 131 * 60 * sizeof(float);
    EXPECT_LT(bytes("resized-plain"), table);
    EXPECT_GT(bytes("trained-embedding"), table);
}

// Pins: newer versions of PEFT store saved modules of a resized model three times.
TEST(Adapter, TensorsThatPeftStoresTwiceAreOne) {
    const LoadedModel base("llama-gqa-linear");
    const engine::Tensor& head = base_tensor(base, "lm_head.weight");
    for (const bool is_equal : {true, false}) {
        const AdapterCopy twice("plain");
        twice.set("modules_to_save", schema::Json::array({"lm_head"}));
        std::vector<std::byte> bytes(head.bytes.begin(), head.bytes.end());
        twice.add(head, "lm_head.weight", bytes);
        twice.add_zeros(head, 131, "lm_head.original_module.weight");
        if (!is_equal) bytes[100] ^= std::byte{1};
        twice.add(head, "lm_head.modules_to_save.weight", bytes);
        const auto adapter = tests::load_adapter(twice.path(), *base.model, *base.backend);
        EXPECT_EQ(adapter.has_value(), is_equal);
        if (is_equal) continue;
        EXPECT_THAT(adapter.error().reason, testing::HasSubstr("differ, although they are one in PEFT"));
    }
}

// Sets all bytes of the tensors whose names end so to 0.
void zero_tensors(const std::filesystem::path& file, const std::string& name_end) {
    std::string bytes = *engine::read_text(file);
    const auto tensors = engine::parse_safetensors(std::as_bytes(std::span(bytes)));
    ASSERT_TRUE(tensors.has_value()) << tensors.error();
    for (const engine::Tensor& tensor : *tensors) {
        if (!tensor.name.ends_with(name_end)) continue;
        const auto at = reinterpret_cast<const char*>(tensor.bytes.data()) - bytes.data();
        std::fill_n(bytes.begin() + at, tensor.bytes.size(), '\0');
    }
    tests::write_text(file, bytes);
}

// Pins: a magnitude is divided by the norm of the base's and the update's row together, and inspection does not read the base.
TEST(Adapter, AMagnitudeOfARowOfZerosIsRefused) {
    const tests::TempFolder folder;
    std::filesystem::copy(checkpoint_folder("llama-gqa-linear"), folder / "base", std::filesystem::copy_options::recursive);
    std::filesystem::copy(adapter_folder("dora"), folder / "adapter", std::filesystem::copy_options::recursive);
    zero_tensors(folder / "base" / "model.safetensors", "layers.1.self_attn.k_proj.weight");
    zero_tensors(folder / "adapter" / "adapter_model.safetensors", "layers.1.self_attn.k_proj.lora_B.weight");
    const auto backend = tests::float32_backend();
    const auto model = engine::Model::load(folder / "base", *backend, StepDriver::rows_max, StepDriver::rows_max);
    EXPECT_TRUE(engine::inspect_adapter(folder / "adapter", model->config()).has_value());
    const auto adapter = tests::load_adapter(folder / "adapter", *model, *backend);
    ASSERT_FALSE(adapter.has_value());
    EXPECT_THAT(adapter.error().reason, testing::HasSubstr("layers.1.self_attn.k_proj.lora_magnitude_vector: a magnitude divided by the "
                                                           "norm of its row of weights is not finite"));
}

TEST(Adapter, MagnitudesOfAnEmbeddingToWhichPositionsAreAddedAreRefused) {
    const LoadedModel base("gpt2");
    const tests::GoldenFolder adapter(adapter_folder("gpt2-embedding"));
    const tests::TempFolder folder;
    std::filesystem::copy(adapter.path(), folder.path(), std::filesystem::copy_options::recursive);
    schema::Json config = schema::Json::parse(tests::read_whole(folder / "adapter_config.json")).value();
    config.set("use_dora", true);
    config.set("target_modules", ".*wte");
    tests::write_text(folder / "adapter_config.json", config.dump());
    const auto info = engine::inspect_adapter(folder.path(), base.model->config());
    ASSERT_FALSE(info.has_value());
    EXPECT_THAT(info.error(), testing::HasSubstr("use_dora = true with transformer.wte in target_modules is not supported for models"));
}

TEST(Adapter, AGitLfsPointerIsNamed) {
    const LoadedModel base("llama-gqa-linear");
    const tests::TempFolder folder;
    std::filesystem::copy(adapter_folder("plain"), folder.path(), std::filesystem::copy_options::recursive);
    for (const std::string name : {"adapter_model.safetensors", "adapter_config.json"}) {
        tests::write_text(folder / name, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 65\n");
        const auto info = engine::inspect_adapter(folder.path(), base.model->config());
        ASSERT_FALSE(info.has_value());
        EXPECT_THAT(info.error(), testing::HasSubstr(name + ": this is a Git LFS pointer"));
    }
}

// Millions of steps of the matcher, which shorter patterns show to sanitizers.
const tests::Labelled long_matches{"Adapter.PatternsThatTakeTooLong*", {tests::Label::not_asan, tests::Label::not_tsan}};

// Pins: patterns of a small file kept a thread busy for 20 s.
TEST(Adapter, PatternsThatTakeTooLongToMatchAreRefused) {
    const LoadedModel base("llama-gqa-linear");
    const tests::TempFolder folder;
    std::filesystem::copy(adapter_folder("plain"), folder.path(), std::filesystem::copy_options::recursive);
    schema::Json config = schema::Json::parse(tests::read_whole(folder / "adapter_config.json")).value();
    schema::Json ranks = schema::Json::object({});
    for (int i = 0; i < 48; ++i) ranks.set(fmt::format("(?:.(?=(?:.?){{1000}}(?:.?){{1000}}{}x))*", i), 8);
    config.set("rank_pattern", std::move(ranks));
    config.set("target_modules", "all-linear");
    tests::write_text(folder / "adapter_config.json", config.dump());
    const auto info = engine::inspect_adapter(folder.path(), base.model->config());
    ASSERT_FALSE(info.has_value());
    EXPECT_THAT(info.error(), testing::HasSubstr("regular expressions take too long to match"));
}

TEST(Adapter, FilesThatChangedSinceRegistrationAreRefused) {
    const LoadedModel base("llama-gqa-linear");
    const auto info = engine::inspect_adapter(adapter_folder("plain"), base.model->config());
    ASSERT_TRUE(info.has_value()) << info.error();
    EXPECT_TRUE(engine::AdapterFiles::read(adapter_folder("plain"), info->hash, *base.model).has_value());
    const auto other = engine::AdapterFiles::read(adapter_folder("regex"), info->hash, *base.model);
    ASSERT_FALSE(other.has_value());
    EXPECT_THAT(other.error().reason, testing::AllOf(testing::HasSubstr("changed"), testing::HasSubstr(info->hash)));
}

}  // namespace
}  // namespace lorry
