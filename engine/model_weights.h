// A model's weights on the device, as model_load.cpp packs them and model.cpp reads them.
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
    kernels::Vector bias;    // the same or empty
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
    Linear gate_up;  // gate | up, or up alone
    Linear down;
};

// Vectors on the device and the memory that holds them.
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

    std::unique_ptr<kernels::PackedWeight> tokens;     // [vocabulary, hidden]; the head's, too, when tied
    std::unique_ptr<kernels::PackedWeight> positions;  // [max_positions, hidden] or none
    std::vector<Layer> layers;
    Norm final_norm;
    std::unique_ptr<kernels::PackedWeight> head;  // none when tied
    VectorStore vectors;
};

// A tensor as pack_weight takes it. Its bytes are copied to `aligned` when the file has them at an odd address.
kernels::WeightPart weight_part(const Tensor& tensor, std::int64_t out_features, std::int64_t in_features, bool transposed,
                                std::vector<std::unique_ptr<std::byte[]>>& aligned);

constexpr kernels::WeightRole role_of(Projection projection) {
    return projection == Projection::head ? kernels::WeightRole::embedding : kernels::WeightRole::projection;
}

// What Model::load builds from its parts.
struct ModelParts {
    ModelConfig config;
    ModelLayout layout;
    std::unique_ptr<Checkpoint> checkpoint;
    ModelWeights weights;
    std::string fingerprint;
};
std::unique_ptr<Model> make_model(ModelParts parts, kernels::Backend& backend, std::int64_t rows_max, std::int64_t sample_rows_max);

}  // namespace lorry::engine
