// Golden encoders, classifiers and embedders of every family give what transformers and peft give, without padding, alone and packed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "engine/files.h"
#include "engine/model/model.h"
#include "engine/model/model_layout.h"
#include "tests/support/golden_model.h"
#include "tests/support/seeded_model.h"

namespace lorry {
namespace {

using engine::PoolingTask;
using tests::SeededFolder;
using tests::TextCase;
using tests::TextGolden;
using tests::WantedText;

constexpr std::int64_t rows_max = 512;

std::vector<std::string> names_of(const std::string& kind, const std::string& file) {
    std::vector<std::string> names = tests::golden_names(kind);
    std::erase_if(names, [&](const std::string& name) { return !std::filesystem::exists(tests::golden_folder() / kind / name / file); });
    return names;
}

std::string encoder_test_name(const testing::TestParamInfo<std::string>& info) {
    std::string name = info.param;
    std::ranges::replace(name, '-', '_');
    return name;
}

PoolingTask task_of(const std::string& architecture) {
    if (architecture.ends_with("ForTokenClassification")) return PoolingTask::token_classify;
    if (architecture.ends_with("ForMaskedLM")) return PoolingTask::fill_mask;
    return architecture.ends_with("ForSequenceClassification") ? PoolingTask::classify : PoolingTask::embed;
}

// The base model of a golden folder: one of the encoders, or a checkpoint.
class Base {
public:
    Base(const std::string& name, kernels::Backend& backend) : weights_(folder_of(name)) {
        // A decoder without a head is an embedder once it is told how to pool.
        const auto pooling = name == "qwen3-bare" ? std::optional(engine::PoolingMode::last) : std::nullopt;
        model_ = engine::Model::load(weights_.path(), backend, rows_max, rows_max, rows_max, pooling);
    }
    engine::Model& model() { return *model_; }

private:
    static std::filesystem::path folder_of(const std::string& name) {
        const auto encoder = tests::golden_folder() / "encoders" / name;
        return std::filesystem::exists(encoder) ? encoder : tests::golden_folder() / "checkpoints" / name;
    }

    const tests::GoldenFolder weights_;
    std::unique_ptr<engine::Model> model_;
};

std::vector<WantedText> all_of(const TextGolden& golden, const WantedText& like) {
    std::vector<WantedText> wanted;
    for (const TextCase& one : golden.cases) {
        WantedText text = like;
        text.text = &one;
        wanted.push_back(text);
    }
    return wanted;
}

// Compares the results of all cases with the reference. With --gtest_output=xml:FILE, the file has the largest difference of each model.
void expect_golden(const std::vector<std::vector<float>>& results, const TextGolden& golden, PoolingTask task) {
    float largest = 0.0F;
    for (std::size_t i = 0; i < results.size(); ++i) {
        const std::vector<float>& expected = task == PoolingTask::embed ? golden.cases[i].hidden : golden.cases[i].logits;
        EXPECT_EQ(tests::difference(results[i], expected, 1e-4F), "") << "case " << i;
        for (std::size_t j = 0; j < std::min(results[i].size(), expected.size()); ++j)
            largest = std::max(largest, std::abs(results[i][j] - expected[j]));
    }
    testing::Test::RecordProperty("architecture", golden.architecture);
    testing::Test::RecordProperty("largest_difference", fmt::format("{:.1e}", largest));
}

class GoldenEncoder : public testing::TestWithParam<std::string> {
protected:
    TextGolden golden_ = tests::read_text_golden(tests::golden_folder() / "encoders" / GetParam());
    std::unique_ptr<kernels::Backend> backend_ = tests::float32_backend();
    Base base_{GetParam(), *backend_};
};
INSTANTIATE_TEST_SUITE_P(Families, GoldenEncoder, testing::ValuesIn(names_of("encoders", "tensors.json")), encoder_test_name);

// Pins: names and places of every tensor, norms after the residual, types, positions, masks, windows, biases by distance, projected
// embeddings, every head.
TEST_P(GoldenEncoder, GivesWhatTransformersGives) {
    const PoolingTask task = task_of(golden_.architecture);
    const auto results =
        tests::pool_texts(base_.model(), *backend_, all_of(golden_, {.task = task, .by_token = task == PoolingTask::embed}));
    expect_golden(results, golden_, task);
}

// Pins batch invariance: the same bits alone and in one batch, whatever its order.
TEST_P(GoldenEncoder, GivesTheSameBitsAloneAndPacked) {
    const auto wanted = all_of(golden_, {.task = task_of(golden_.architecture)});
    auto reversed = wanted;
    std::ranges::reverse(reversed);
    const auto packed = tests::pool_texts(base_.model(), *backend_, wanted);
    const auto backwards = tests::pool_texts(base_.model(), *backend_, reversed);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const auto alone = tests::pool_texts(base_.model(), *backend_, {wanted[i]});
        EXPECT_EQ(alone.front(), packed[i]) << "case " << i;
        EXPECT_EQ(backwards[wanted.size() - 1 - i], packed[i]) << "case " << i;
    }
}

// Pins: the tensors of heads, of relative positions and of convolutions were checked, but not weighed.
TEST_P(GoldenEncoder, CountsEachTensorOnceAsUsedOrUnused) {
    const engine::Model& model = base_.model();
    const engine::CheckedTensors checked = engine::check_checkpoint(model.config(), model.layout(), model.checkpoint());
    std::int64_t used = 0;
    for (const engine::LayoutTensor& tensor : checked.used) used += tensor.elements();
    std::int64_t all = 0;
    for (const engine::Tensor& tensor : model.checkpoint().tensors()) {
        const bool is_tied_copy =
            model.config().tied_head && model.layout().head() != nullptr && tensor.name == model.layout().head()->path + ".weight";
        if (!is_tied_copy && std::ranges::find(checked.unused, tensor.name) == checked.unused.end())
            all += std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
    }
    EXPECT_EQ(used, all);
    // As float32, at least; the checkpoint's first rows of positions may be unused.
    const std::int64_t unused_rows = model.config().first_position * model.config().embedding_width();
    EXPECT_GE(model.weight_bytes(), 4 * static_cast<std::size_t>(used - unused_rows));
}

class GoldenEncoderAdapter : public testing::TestWithParam<std::string> {
protected:
    std::filesystem::path folder_ = tests::golden_folder() / "encoder_adapters" / GetParam();
    TextGolden golden_ = tests::read_text_golden(folder_);
    std::unique_ptr<kernels::Backend> backend_ = tests::float32_backend();
    Base base_{golden_.base, *backend_};
    SeededFolder weights_{folder_, "adapter_model.safetensors"};
};
INSTANTIATE_TEST_SUITE_P(Families, GoldenEncoderAdapter, testing::ValuesIn(names_of("encoder_adapters", "tensors.json")),
                         encoder_test_name);

// Pins: an adapter's own head, with as many labels as it has, and its updates of modules with and without the base's prefix.
TEST_P(GoldenEncoderAdapter, GivesWhatPeftGives) {
    const auto adapter = tests::load_adapter(weights_.path(), base_.model(), *backend_);
    ASSERT_TRUE(adapter) << adapter.error().reason;
    const PoolingTask task = task_of(golden_.architecture);
    const auto results = tests::pool_texts(
        base_.model(), *backend_, all_of(golden_, {.task = task, .adapter = adapter->get(), .by_token = task == PoolingTask::embed}));
    expect_golden(results, golden_, task);
}

// Pins: what the GPU has no kernels for is refused when it is loaded, not when it runs.
TEST(EncodersOnAGpu, AreRefusedWithWhatToDo) {
    const auto backend = kernels::make_cuda_backend({.storage = {.weights = kernels::Format::float32}});
    try {
        Base("bert-seq", *backend);
        ADD_FAILURE() << "an encoder was loaded";
    } catch (const std::runtime_error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("--device cpu"));
    }
    const auto causal = tests::golden_folder() / "checkpoints/llama-mha";
    EXPECT_THROW(engine::Model::load(causal, *backend, rows_max, rows_max, rows_max, engine::PoolingMode::last), std::runtime_error);
    const auto model = engine::Model::load(causal, *backend, rows_max, rows_max);
    const SeededFolder folder(tests::golden_folder() / "encoder_adapters/llama-causal-classify", "adapter_model.safetensors");
    const auto adapter = tests::load_adapter(folder.path(), *model, *backend);
    ASSERT_FALSE(adapter);
    EXPECT_THAT(adapter.error().reason, testing::HasSubstr("--device cpu"));
}

// Pins: a run that is resumed with another pooling would mix two kinds of vectors.
TEST(Fingerprint, DependsOnThePooling) {
    const auto backend = tests::float32_backend();
    const SeededFolder folder(tests::golden_folder() / "encoders/bert", "model.safetensors");
    const auto fingerprint = [&](std::optional<engine::PoolingMode> pooling) {
        return engine::Model::load(folder.path(), *backend, rows_max, rows_max, rows_max, pooling)->fingerprint();
    };
    EXPECT_EQ(fingerprint(std::nullopt), fingerprint(engine::PoolingMode::mean));
    EXPECT_NE(fingerprint(engine::PoolingMode::cls), fingerprint(engine::PoolingMode::mean));
}

// What is wrong with a folder or an adapter is said when it is loaded.
TEST(BrokenHeads, AreRefusedByName) {
    const auto backend = tests::float32_backend();
    const auto golden = tests::golden_folder();
    const auto changed = [&](const std::string& name, const std::string& from, const std::string& to) {
        const SeededFolder folder(golden / "encoders" / name, "model.safetensors");
        std::string text = *engine::read_text(folder.path() / "config.json");
        const auto at = text.find(from);
        if (at == std::string::npos) return "no such text: " + from;
        tests::write_text(folder.path() / "config.json", text.replace(at, from.size(), to));
        try {
            engine::Model::load(folder.path(), *backend, rows_max, rows_max);
        } catch (const std::runtime_error& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    using testing::HasSubstr;
    EXPECT_THAT(changed("bert-seq", "\"id2label\": {", "\"id2label\": {\"3\": \"more\","), HasSubstr("classifier.weight"));
    EXPECT_THAT(changed("bert-seq", "\"id2label\": {", "\"id2label\": {\"7\": \"far\","), HasSubstr("id2label"));
    EXPECT_THAT(changed("bert-seq", "single_label_classification", "guessing"), HasSubstr("problem_type"));
    EXPECT_THAT(changed("bert-seq", "BertForSequenceClassification", "BertForMultipleChoice"), HasSubstr("architectures"));
    EXPECT_THAT(changed("bert", "\"type_vocab_size\": 2", "\"type_vocab_size\": 3"), HasSubstr("token_type_embeddings"));
    EXPECT_THAT(changed("bert", "\"is_decoder\": false", "\"is_decoder\": true"), HasSubstr("is_decoder"));
    EXPECT_THAT(changed("modernbert", "\"local_attention\": 8", "\"local_attention\": -8"), HasSubstr("local_attention"));

    // A SEQ_CLS adapter needs a hidden layer that a base for tokens does not have, and another family's tensors fit nowhere.
    const auto refusal = [&](const std::string& base_name, const std::string& adapter) {
        Base base(base_name, *backend);
        const SeededFolder folder(golden / "encoder_adapters" / adapter, "adapter_model.safetensors");
        const auto loaded = tests::load_adapter(folder.path(), base.model(), *backend);
        return loaded ? std::string("accepted") : loaded.error().reason;
    };
    EXPECT_THAT(refusal("roberta", "bert-sentiment"), HasSubstr("is missing"));
    EXPECT_THAT(refusal("bert", "roberta-classify"), HasSubstr("is missing"));
}

// Pins: an adapter's changes that reach the rows of the base or of its other texts, such as keys and queries of relative positions.
TEST_P(GoldenEncoderAdapter, GivesTheSameBitsAloneAndBesideTheBase) {
    const auto adapter = tests::load_adapter(weights_.path(), base_.model(), *backend_);
    ASSERT_TRUE(adapter) << adapter.error().reason;
    auto wanted = all_of(golden_, {.task = task_of(golden_.architecture), .adapter = adapter->get()});
    TextGolden known = golden_;  // without the tokens that only the adapter has
    for (TextCase& one : known.cases) {
        for (kernels::TokenId& token : one.tokens) token = static_cast<kernels::TokenId>(token % base_.model().config().vocabulary);
    }
    if (base_.model().config().embedder) {
        const auto of_base = all_of(known, {.task = PoolingTask::embed});
        wanted.insert(wanted.begin() + 1, of_base.begin(), of_base.end());
    }
    const auto packed = tests::pool_texts(base_.model(), *backend_, wanted);
    for (std::size_t i = 0; i < wanted.size(); ++i)
        EXPECT_EQ(tests::pool_texts(base_.model(), *backend_, {wanted[i]}).front(), packed[i]) << "text " << i;
}

}  // namespace
}  // namespace lorry
