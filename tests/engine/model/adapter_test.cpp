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

std::filesystem::path adapter_folder(const std::string& name) { return tests::golden_folder() / "adapters" / name; }
// Of a checkpoint in full precision or a quantized one.
std::filesystem::path checkpoint_folder(const std::string& name) {
    const auto folder = tests::golden_folder() / "checkpoints" / name;
    return std::filesystem::exists(folder) ? folder : tests::golden_folder() / "quantized" / name;
}

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
           name == "embedding";
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
    for (const std::string name : {"embedding", "smollm3-tokens", "phi3-saved-embedding", "trained-embedding"}) {
        const tests::GoldenFolder base(checkpoint_folder(tests::read_golden(adapter_folder(name)).base));
        const auto model = engine::Model::load(base.path(), *backend, StepDriver::rows_max, StepDriver::rows_max);
        const auto adapter = tests::load_adapter(tests::GoldenFolder(adapter_folder(name)).path(), *model, *backend);
        ASSERT_FALSE(adapter.has_value());
        EXPECT_THAT(adapter.error().reason,
                    testing::HasSubstr("changes model.embed_tokens, for which a GPU has no kernels yet; use --device cpu"));
    }
}

// Pins: tokens were added and the embedding was resized before the training, which PEFT stores in full.
TEST(Adapter, AResizedVocabularyIsRefusedWithWhatToDo) {
    const LoadedModel base("llama-gqa-linear");
    for (const std::string path : {"model.embed_tokens", "lm_head"}) {
        SCOPED_TRACE(path);
        engine::Tensor grown = *base.model->checkpoint().find(path + ".weight", base.model->layout().prefix);
        const std::size_t row_bytes = grown.bytes.size() / static_cast<std::size_t>(grown.shape[0]);
        grown.shape[0] += 2;
        const std::vector<std::byte> bytes(grown.bytes.size() + 2 * row_bytes);
        const tests::TempFolder folder;
        std::filesystem::copy(adapter_folder("plain"), folder.path(), std::filesystem::copy_options::recursive);
        add_tensor(folder / "adapter_model.safetensors", grown, "base_model.model." + path + ".weight", bytes);
        const auto adapter = tests::load_adapter(folder.path(), *base.model, *base.backend);
        ASSERT_FALSE(adapter.has_value());
        EXPECT_THAT(adapter.error().reason, testing::HasSubstr(path + ".weight has shape [133, 60]"));
        EXPECT_THAT(adapter.error().reason, testing::HasSubstr("an adapter cannot resize the vocabulary: merge it"));
        const auto info = engine::inspect_adapter(folder.path(), base.model->config());
        ASSERT_FALSE(info.has_value());
        EXPECT_EQ(info.error(), adapter.error().reason);
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
