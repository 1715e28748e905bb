// Matches the tensors of an adapter with the modules of a model. Every tensor that the config requires must exist in the right shape, and
// every tensor that exists must be required. Called by adapter.cpp for inspection and for loading.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/adapter_config.h"
#include "engine/model/model_config.h"
#include "engine/model/model_layout.h"
#include "engine/model/weights.h"

namespace lorry::engine {

// What PEFT puts before the name of a module.
inline constexpr std::string_view name_prefix = "base_model.model.";

// All pointers point into the layout and the tensors that were matched.
struct LoraMatch {
    const LinearModule* module = nullptr;
    const Tensor* a = nullptr;     // [rank, in_features]
    const Tensor* b = nullptr;     // [out_features, rank]
    const Tensor* bias = nullptr;  // [out_features] of lora_B, or none
    float scale = 1.0F;
    const Tensor* magnitude = nullptr;    // [out_features] (DoRA), or none
    std::vector<float> output_scales;     // of the magnitudes, as output_scales(); found by adapter.cpp, which has the base's weights
    const Tensor* base_weight = nullptr;  // PEFT's copy of the base's weight (stored with a targeted head), or none
};
struct SavedLinearMatch {
    const LinearModule* module = nullptr;
    const Tensor* weight = nullptr;  // [out_features, in_features], or [in_features, out_features] for Conv1D
    const Tensor* bias = nullptr;    // or none
};
struct SavedNormMatch {
    const NormModule* module = nullptr;
    const Tensor* weight = nullptr;  // none: only the bias was trained
    const Tensor* bias = nullptr;    // or none
};
struct BiasMatch {
    const LinearModule* module = nullptr;
    const Tensor* bias = nullptr;  // [out_features], replaces the base's
};

// A low-rank update of the embedding of tokens.
struct EmbeddingUpdate {
    const Tensor* a = nullptr;  // [rank, vocabulary of the adapter]
    const Tensor* b = nullptr;  // [width, rank]
    float scale = 1.0F;
    const Tensor* magnitude = nullptr;  // [width] (DoRA), or none
    std::vector<float> column_scales;   // [width] magnitudes divided by the norms of columns; set when the base's weights are read
};
// Rows of the embedding of tokens or of the head that the adapter replaces or adds.
struct TokenRows {
    std::vector<std::int64_t> tokens;
    Tensor rows;  // [tokens, width]
};

// The embedding or the head as save_embedding_layers writes them: copies of the base's unless they were trained or resized.
struct CopyMatch {
    std::string path;  // of the base's module
    const Tensor* copy = nullptr;
};
// PEFT stores some tensors twice.
struct TwinMatch {
    const Tensor* one = nullptr;
    const Tensor* other = nullptr;
};

// The adapter's own classification head. Its hidden layer, if the head has one, is replaced, or changed by a low-rank update of the base's.
struct HeadMatch {
    PoolingTask task = PoolingTask::classify;
    const HeadModule* module = nullptr;
    std::int64_t labels = 0;
    const Tensor* output_weight = nullptr;  // [labels, in_features]
    const Tensor* output_bias = nullptr;    // or none
    const Tensor* dense_weight = nullptr;   // none: the base's hidden layer
    const Tensor* dense_bias = nullptr;
    const Tensor* norm_weight = nullptr;
    const Tensor* norm_bias = nullptr;
    const Tensor* lora_a = nullptr;  // of the hidden layer, or none
    const Tensor* lora_b = nullptr;
    const Tensor* magnitude = nullptr;  // [dense_size] (DoRA), or none
    float scale = 1.0F;
};

struct AdapterMatch {
    std::int64_t vocabulary = 0;  // rows of its embedding and its head, which may be more or fewer than the base's
    std::vector<LoraMatch> loras;
    std::vector<SavedLinearMatch> linears;
    std::vector<SavedNormMatch> norms;
    std::vector<BiasMatch> biases;
    std::optional<HeadMatch> head;
    std::optional<EmbeddingUpdate> embedding_update;
    const Tensor* embedding = nullptr;      // [vocabulary, width], replaces the base's embedding of tokens
    std::vector<TokenRows> embedding_rows;  // on top of that; of a token that several have, the last one's counts
    std::vector<TokenRows> head_rows;       // likewise; also those of a tied embedding
    std::vector<CopyMatch> copies;          // to be compared with the base's weights: they change nothing if they are equal
    std::vector<TwinMatch> twins;           // to be compared with each other
};

// The error names the tensor or the key of adapter_config.json.
Expected<AdapterMatch, std::string> match_adapter(const AdapterConfig& config, const ModelLayout& layout, const ModelConfig& model,
                                                  std::span<const Tensor> tensors);

}  // namespace lorry::engine
