// A model's weights on the device. model_load.cpp packs them; model.cpp reads them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "engine/model/model_layout.h"
#include "engine/model/weights.h"
#include "kernels/backend.h"

namespace lorry::engine {

struct Norm {
    kernels::Vector weight;  // [hidden], or [head_dim] for q and k; empty: nothing is normalized
    kernels::Vector bias;    // the same shape, or empty
    bool in_place = false;   // as NormModule
};

struct Linear {
    std::unique_ptr<kernels::PackedWeight> weight;
    kernels::Vector bias;  // [out_features] or empty
};

// norm(activation(weight · x + bias)): the hidden layer of a head, or a Dense module.
struct HiddenLayer {
    Linear linear;  // without a weight: there is no such layer
    std::optional<kernels::ActivationKind> activation;
    Norm norm;
};

// A head of a base model or an adapter; see HeadModule.
struct Classifier {
    PoolingTask task = PoolingTask::classify;  // or token_classify
    HiddenLayer hidden;                        // an adapter's without a weight: the base's is used
    Linear output;                             // [labels, hidden]; without a weight: there are no labels
    std::shared_ptr<const Labels> labels;
};

struct Mlp {
    Linear gate_up;  // gate | up, or up only
    Linear down;
};

struct Layer {
    Norm attention_norm;
    Linear qkv;  // q | k | v
    kernels::Vector q_norm;
    kernels::Vector k_norm;
    kernels::Vector sinks;  // [heads] or empty
    Linear positions;       // q | k of relative positions, or one of them; without a weight: they are made by qkv
    float attention_scale = 0.0F;
    std::optional<std::int64_t> window;
    bool rotates = true;  // it has rope
    Linear output;
    Norm attention_out_norm;  // of what attention adds to the residual; without a weight: none
    Norm mlp_norm;
    Mlp mlp;                   // the layer's; of a layer with experts, the expert for all tokens, without weights if there is none
    Linear router;             // scores of experts; without a weight: the layer has none
    std::vector<Mlp> experts;  // of equal sizes
    Linear shared_gate;        // of the expert for all tokens: its output is multiplied by a sigmoid of this
    Norm mlp_out_norm;
};

// Vectors on the device, and the memory that holds them.
class VectorStore {
public:
    explicit VectorStore(kernels::Packer& packer) : packer_(&packer) {}
    kernels::Vector add(std::span<const float> values);
    std::size_t bytes() const;

private:
    kernels::Packer* packer_;
    std::vector<std::unique_ptr<kernels::Buffer>> buffers_;
};

struct ModelWeights {
    explicit ModelWeights(kernels::Backend& backend) : vectors(backend) {}

    std::unique_ptr<kernels::PackedWeight> tokens;     // [vocabulary, hidden]; also the head if it is tied
    std::unique_ptr<kernels::PackedWeight> positions;  // [max_positions, hidden] or nullptr
    std::unique_ptr<kernels::PackedWeight> types;      // [token types, hidden] or nullptr
    Norm embedding_norm;                               // if embeddings are projected
    Linear embedding_projection;                       // without a weight: embeddings have the hidden size
    std::vector<Layer> layers;
    Norm final_norm;
    std::unique_ptr<kernels::PackedWeight> head;  // nullptr if it is tied, or if there is none
    HiddenLayer before_head;                      // of a masked language model
    kernels::Vector head_bias;                    // [vocabulary] or empty
    std::vector<HiddenLayer> dense;               // EmbedderConfig::dense
    Classifier classifier;                        // without labels: its hidden layer is for adapters that have labels
    kernels::Vector distance_bias;                // [heads, stride] as AttentionArgs::bias_by_distance; empty: none
    std::int64_t distance_stride = 0;
    kernels::Vector relative_positions;  // [positions, hidden] or empty
    Norm relative_norm;                  // of these; without a weight: they are not normalized
    Norm convolution_norm;               // of the first layer's output, before the convolution is added
    Linear convolution;                  // [hidden, width · hidden]; without a weight: there is none
    VectorStore vectors;
    std::size_t matrix_bytes = 0;  // of all packed weights
};

// A tensor in the form that pack_weight takes. If its bytes are not aligned in the file, they are copied to `aligned`.
kernels::WeightPart weight_part(const Tensor& tensor, std::int64_t out_features, std::int64_t in_features, bool transposed,
                                std::vector<std::unique_ptr<std::byte[]>>& aligned);

// Rows [first, first + rows) of a part that is not transposed.
kernels::WeightPart rows_of(const kernels::WeightPart& part, std::int64_t first, std::int64_t rows);

constexpr kernels::WeightRole role_of(Projection projection) {
    if (projection == Projection::head) return kernels::WeightRole::embedding;
    // Which experts a token has must not depend on how weights are stored.
    const bool is_exact = projection == Projection::router || projection == Projection::shared_gate;
    return is_exact ? kernels::WeightRole::exact : kernels::WeightRole::projection;
}

// A linear module's tensors with outputs in the order of its projection. weight: [out_features, columns], the module's own or an adapter's
// B.
kernels::WeightPart weight_of(const ModelConfig& config, const LinearModule& module, const Tensor& weight, std::int64_t columns,
                              std::vector<std::unique_ptr<std::byte[]>>& aligned);
std::vector<float> bias_of(const ModelConfig& config, const LinearModule& module, const Tensor& bias);
// One value for each output of a module, in the order of its projection instead of the checkpoint's.
std::vector<float> in_projection_order(const ModelConfig& config, const LinearModule& module, std::vector<float> values);
// A norm's weight as it multiplies.
std::vector<float> norm_weight_of(const ModelConfig& config, const Tensor& weight);

// Whether the device has kernels for encoders, pooling, and heads other than the vocabulary's.
bool can_pool(const kernels::Backend& backend);

// The parts that Model::load builds a model from.
struct ModelParts {
    ModelConfig config;
    ModelLayout layout;
    std::unique_ptr<Checkpoint> checkpoint;
    ModelWeights weights;
    std::string fingerprint;
    std::vector<std::string> unused_tensors;  // CheckedTensors::unused
};

// A head's hidden layer and its output, packed exactly. `tensor` finds a tensor by its name; null: there is none, as of a layer that is
// missing. The labels are not set.
using FindTensor = std::function<const Tensor*(const std::string& name)>;
HiddenLayer pack_hidden(const HeadModule& head, const FindTensor& tensor, kernels::Packer& packer, VectorStore& vectors);
Linear pack_output(const HeadModule& head, const FindTensor& tensor, kernels::Packer& packer, VectorStore& vectors);

std::unique_ptr<Model> make_model(ModelParts parts, kernels::Backend& backend, std::int64_t rows_max, std::int64_t sample_rows_max);

}  // namespace lorry::engine
