// Golden encoders, classifiers and their adapters (tests/data/models/encoders), whose weights are made from the names of tensors, and a
// driver that pools texts in one step of a model. Used by tests of the engine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/adapter.h"
#include "engine/model/model.h"
#include "tests/support/temp_folder.h"

namespace lorry::tests {

// A copy of a folder of configs with a safetensors file of the weights that its tensors.json describes: element i of a tensor is
// offset + scale * (2 u - 1), with u drawn by splitmix64 from FNV-1a of the name and i (tests/data/models/README.md). Tensors of
// quantized checkpoints may have other dtypes, listed values, or whatever bits are drawn.
class SeededFolder {
public:
    // file: of the weights, "model.safetensors" or "adapter_model.safetensors"
    SeededFolder(const std::filesystem::path& from, const std::string& file);
    const std::filesystem::path& path() const { return path_; }

private:
    TempFolder folder_;
    std::filesystem::path path_;
};

// A golden model or adapter with its weights: the folder itself, or a SeededFolder of it.
class GoldenFolder {
public:
    explicit GoldenFolder(const std::filesystem::path& from);
    const std::filesystem::path& path() const { return seeded_ ? seeded_->path() : path_; }

private:
    std::filesystem::path path_;
    std::optional<SeededFolder> seeded_;
};

struct TextCase {
    std::vector<kernels::TokenId> tokens;
    std::vector<std::int32_t> types;  // empty: the model has none
    std::vector<float> hidden;        // [tokens, hidden]
    std::vector<float> logits;        // [labels], [tokens, labels] or [tokens, vocabulary]; empty: there is no head
};
struct TextGolden {
    std::string base;          // of an adapter
    std::string architecture;  // of config.json, or what the adapter was trained on
    std::vector<TextCase> cases;
};
TextGolden read_text_golden(const std::filesystem::path& folder);

// A text and what is wanted of it.
struct WantedText {
    const TextCase* text = nullptr;
    engine::PoolingTask task = engine::PoolingTask::embed;
    const engine::Adapter* adapter = nullptr;
    bool by_token = false;  // embed: the hidden state of each token, instead of one vector
};
// Computes all texts in one step, in the order of their adapters, and returns what each asked for. A masked language model's tokens all
// give logits.
std::vector<std::vector<float>> pool_texts(engine::Model& model, kernels::Backend& backend, const std::vector<WantedText>& wanted);

}  // namespace lorry::tests
