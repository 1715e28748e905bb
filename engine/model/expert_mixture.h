// A mixture of experts: a router scores all experts for each row, and the row gets the weighted sum of the outputs of a few of them. Rows
// are grouped by expert, as other rows are by adapter: unpadded, so that a step reads the weights of each chosen expert once. Called by
// model.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/activation.h"
#include "engine/model/adapted_ops.h"
#include "engine/model/model_weights.h"

namespace lorry::engine {

// Which experts the rows of a step have. Rows are grouped by expert: a row has a place among those of each of its experts.
class Routing {
public:
    explicit Routing(const ExpertsConfig& config) : config_(config) {}

    // scores: [rows, experts]. A row's experts are those with the largest scores, the lower index first among equals; its factors are their
    // softmax, or their share of the softmax over all experts.
    void choose(std::span<const float> scores);

    struct Group {
        std::int64_t expert = 0;
        std::int64_t begin = 0;  // its places
        std::int64_t count = 0;
    };
    std::span<const Group> groups() const { return groups_; }         // without experts that no row has; by expert
    std::span<const std::int32_t> rows() const { return rows_; }      // for each place its row; ascending within a group
    std::span<const std::int32_t> places() const { return places_; }  // [rows, chosen] by expert
    std::span<const float> factors() const { return factors_; }       // the same

private:
    void choose_of_row(std::span<const float> scores);
    void group();

    const ExpertsConfig& config_;
    std::vector<std::int32_t> best_;    // of one row
    std::vector<std::int32_t> chosen_;  // [rows, chosen] experts, ascending
    std::vector<float> factors_;
    std::vector<Group> groups_;
    std::vector<std::int32_t> rows_;
    std::vector<std::int32_t> places_;
};

// The engine's thread only. For each layer: scored() is filled, then score(), then add().
class ExpertMixture {
public:
    // Takes the memory of a step of rows_max rows. All outlive it.
    ExpertMixture(const ModelConfig& config, AdaptedOps& ops, kernels::Backend& backend, std::int64_t rows_max);

    // [rows, hidden] float32, which score() reads: the normalized rows.
    kernels::Matrix scored(std::int64_t rows) const { return scored_.view(rows); }
    // Routes the rows. Waits for the scores, because the host decides which ops come next.
    void score(const Layer& layer, const Site& site, const kernels::Matrix& scored);

    struct Addition {
        kernels::Matrix in;        // [rows, hidden] the normalized rows as experts read them
        kernels::Matrix shared;    // the output of the expert for all tokens; no rows: there is none
        kernels::Matrix residual;  // added to
    };
    // Adds, for each row, the sum over its experts by index, then the shared one's: a row's sum does not depend on the other rows.
    void add(const Layer& layer, const Site& site, const Addition& addition);

private:
    // Runs one expert on its rows of `picked`; they end up in the same rows of expert_out_.
    void run(const Layer& layer, const Site& site, const Routing::Group& group, const kernels::Matrix& picked);

    const ModelConfig& config_;
    AdaptedOps& ops_;
    kernels::Backend& backend_;
    Routing routing_;
    const Activation scored_;
    const Activation scores_;         // [rows, experts]
    const Activation shared_scores_;  // [rows, 1]
    const Activation picked_;         // [rows · chosen], grouped by expert
    const Activation expert_out_;     // the same
    const Activation gate_up_;        // of one expert
    const Activation activated_;
    // Kept between steps for their capacity.
    std::vector<float> read_scores_;
    std::vector<AdapterRows> adapters_;
};

}  // namespace lorry::engine
