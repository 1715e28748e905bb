// Norms and projections of rows with different adapters: the base's op for all rows, or for those between the groups that replace it, and
// what adapters add. Called by model.cpp, expert_mixture.cpp and disentangled_bias.cpp.
#pragma once

#include <span>
#include <vector>

#include "engine/model/activation.h"
#include "engine/model/adapter.h"
#include "engine/model/model.h"
#include "engine/model/model_weights.h"
#include "kernels/backend.h"

namespace lorry::engine {

// Calls run(row_begin, row_count, change) for consecutive ranges of rows: with the change of each group for which get(adapter) returns one,
// and with nullptr for the rows between such groups.
template <typename Get, typename Run>
void for_changed_rows(std::span<const AdapterRows> groups, std::int64_t rows, Get get, Run run) {
    std::int64_t begin = 0;
    for (const AdapterRows& group : groups) {
        const auto* change = get(*group.adapter);
        if (change == nullptr) continue;
        if (begin < group.row_begin) run(begin, group.row_begin - begin, decltype(change)(nullptr));
        run(group.row_begin, group.row_count, change);
        begin = group.row_begin + group.row_count;
    }
    using Change = decltype(get(*groups.front().adapter));
    if (begin < rows) run(begin, rows - begin, Change(nullptr));
}

// The layer and, within it, the expert that an op belongs to, and the adapters of its rows.
struct Site {
    std::int64_t layer = 0;
    std::optional<std::int64_t> expert = {};
    std::span<const AdapterRows> adapters;

    // What the adapter changes in one of its projections; nullptr: nothing.
    const AdapterProjection* change_of(const Adapter& adapter, Projection projection) const {
        return expert ? adapter.at_expert(layer, *expert, projection) : adapter.at(layer, projection);
    }
};
// Groups of rows in terms of some of these, which ascend. Appends to `out`.
void add_groups_among(std::span<const AdapterRows> groups, std::span<const std::int32_t> rows, std::vector<AdapterRows>& out);

// What adapters change in the embedding of tokens.
struct EmbedCall {
    const Site& site;
    const ModelWeights& weights;
    const kernels::StepInputs& step;
    kernels::Matrix out;        // [rows, width] float32
    const Activation& scratch;  // as wide
};

// out = norm(in), with the base's norm or an adapter's own.
struct NormCall {
    const Site& site;
    NormSite norm_site;
    const Norm& base;
    kernels::Matrix out;
    kernels::Matrix in;
};
// out (+)= weight · in + bias; then each group's adapter adds to its rows or replaces them. Of the head, `out` has columns for the largest
// vocabulary; rows of smaller ones leave the last columns as they were.
struct ProjectCall {
    const Site& site;
    Projection projection;
    const kernels::PackedWeight& weight;
    kernels::Vector bias;
    kernels::Matrix out;
    kernels::Matrix in;
    bool accumulate = false;
    const kernels::PackedWeight* next = nullptr;
};

// The activation of an MLP's gate_up: out = activation(gate_up(in)), gated or not, with what adapters add to gate_up.
struct ActivateCall {
    const Site& site;
    const Mlp& mlp;
    kernels::Matrix out;   // as mlp.down reads it
    kernels::Matrix sums;  // [rows, outputs of gate_up] float32; their contents are undefined afterwards
    kernels::Matrix in;
};

// The engine's thread only.
class AdaptedOps {
public:
    // Both outlive it.
    AdaptedOps(const ModelConfig& config, kernels::Backend& backend) : config_(config), backend_(backend) {}

    void embed(const EmbedCall& call);
    void normalize(const NormCall& call);
    void project(const ProjectCall& call);
    void activate(const ActivateCall& call);
    // What adapters change in a projection that they do not replace as a whole.
    void add_changes(const ProjectCall& call);

private:
    void divide_by_scales(const ProjectCall& call);

    const ModelConfig& config_;
    kernels::Backend& backend_;
    // Kept between steps for their capacity.
    std::vector<kernels::LoraGroup> lora_groups_;
    std::vector<kernels::BiasGroup> bias_groups_;
    std::vector<kernels::OwnEmbedding> own_embeddings_;
};

}  // namespace lorry::engine
