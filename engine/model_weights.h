// A model's weights on the device. model_load.cpp packs them; model.cpp reads them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/model.h"
#include "engine/model_layout.h"
#include "engine/weights.h"
#include "kernels/backend.h"

namespace lorry::engine {

struct Norm {
    kernels::Vector weight;  // [hidden], or [head_dim] for q and k
    kernels::Vector bias;    // the same shape, or empty
};

struct Linear {
    std::unique_ptr<kernels::PackedWeight> weight;
    kernels::Vector bias;  // [out_features] or empty
};

struct Layer {
    Norm attention_norm;
    Linear qkv;  // q | k | v
    kernels::Vector q_norm;
    kernels::Vector k_norm;
    float attention_scale = 0.0F;
    std::optional<std::int64_t> window;
    Linear output;
    Norm mlp_norm;
    Linear gate_up;  // gate | up, or up only
    Linear down;
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
    std::vector<Layer> layers;
    Norm final_norm;
    std::unique_ptr<kernels::PackedWeight> head;  // nullptr if it is tied
    VectorStore vectors;
};

// A tensor in the form that pack_weight takes. If its bytes are not aligned in the file, they are copied to `aligned`.
kernels::WeightPart weight_part(const Tensor& tensor, std::int64_t out_features, std::int64_t in_features, bool transposed,
                                std::vector<std::unique_ptr<std::byte[]>>& aligned);

constexpr kernels::WeightRole role_of(Projection projection) {
    return projection == Projection::head ? kernels::WeightRole::embedding : kernels::WeightRole::projection;
}

// The parts that Model::load builds a model from.
struct ModelParts {
    ModelConfig config;
    ModelLayout layout;
    std::unique_ptr<Checkpoint> checkpoint;
    ModelWeights weights;
    std::string fingerprint;
};
std::unique_ptr<Model> make_model(ModelParts parts, kernels::Backend& backend, std::int64_t rows_max, std::int64_t sample_rows_max);

}  // namespace lorry::engine
