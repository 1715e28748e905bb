// The bias of disentangled attention (DeBERTa): products of tokens' queries and keys with the keys and queries of relative positions.
// Called by model.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/model/activation.h"
#include "engine/model/adapted_ops.h"
#include "engine/model/model_weights.h"

namespace lorry::engine {

// The engine's thread only.
class DisentangledBias {
public:
    // Computes what does not depend on a step: the normalized embeddings of positions and, for rows without adapters, their queries and
    // keys. Takes the memory of a step of rows_max rows. All outlive it.
    DisentangledBias(const ModelParts& parts, AdaptedOps& ops, kernels::Backend& backend, std::int64_t rows_max);

    // As AttentionArgs::bias_by_token, valid until the next call. An adapter that changes the projection of positions gives its rows other
    // positions. qkv: of all rows of the step.
    kernels::Matrix run(const Layer& layer, const Site& site, const kernels::StepInputs& step, const kernels::Matrix& qkv);

private:
    const ModelConfig& config() const { return parts_.config; }
    // Relative positions are projected by their own weights, or by the layer's for queries and keys, whose values are not used.
    bool has_own_projection() const { return !config().disentangled->shares_projections; }
    Projection projection() const { return has_own_projection() ? Projection::positions : Projection::qkv; }
    const Linear& linear_of(const Layer& layer) const { return has_own_projection() ? layer.positions : layer.qkv; }
    // Queries and keys among the projection's outputs.
    std::int64_t columns() const {
        return has_own_projection() ? out_features_of(config(), Projection::positions) : 2 * config().heads * config().head_dim;
    }
    std::int64_t rows() const { return config().disentangled->positions(); }

    // Projects positions [begin, begin + count).
    ProjectCall call_of(const Layer& layer, const Site& site, std::int64_t begin, std::int64_t count) const;
    void copy(const kernels::Matrix& from, const kernels::Matrix& to);
    // Queries and keys for an adapter that changes them; those of [begin, begin + count) are valid, until the next call.
    kernels::Matrix positions_of(const Layer& layer, const Site& site, const Adapter& adapter, std::int64_t begin, std::int64_t count);
    // Columns of the bias of one row, if the longest text of the step has this many tokens.
    std::int64_t bias_columns(std::int64_t longest) const;
    std::unique_ptr<kernels::Buffer> take_memory(std::int64_t rows_max) const;
    kernels::Matrix view_bias(const kernels::StepInputs& step, std::int64_t longest) const;

    const ModelParts& parts_;
    AdaptedOps& ops_;
    kernels::Backend& backend_;
    const std::vector<std::int32_t> position_of_distance_;  // as DisentangledBiasArgs
    const Activation embedded_;                             // [positions, hidden] as the projection reads them
    const Activation projected_;                            // [positions, the projection's outputs]
    std::vector<Activation> of_base_;                       // [layers] queries and keys without adapters
    const std::unique_ptr<kernels::Buffer> bias_;           // of the largest step
};

}  // namespace lorry::engine
