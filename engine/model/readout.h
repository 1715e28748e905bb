// What is read from a model's last hidden states: pooled vectors, and the scores of classification heads. Called by model.cpp.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/model/activation.h"
#include "engine/model/model_weights.h"
#include "kernels/backend.h"

namespace lorry::engine {

// The engine's thread only.
class Readout {
public:
    // parts and backend outlive it.
    Readout(const ModelParts& parts, kernels::Backend& backend, std::int64_t rows_max);

    // Where the normalized hidden states of `rows` rows belong: [rows, hidden] float32.
    kernels::Matrix hidden(std::int64_t rows) const { return hidden_.view(rows); }
    // out = norm(activation(linear(in))); in: float32.
    void run_hidden_layer(const HiddenLayer& layer, const kernels::Matrix& in, const kernels::Matrix& out) const;
    // Makes room for the results of all texts of a step.
    void begin(std::span<const PooledText> texts);
    // Sets `out` of texts whose rows are adjacent. in: these rows, from the first text's on. Their results follow those of the texts that
    // came before since begin().
    void run(const kernels::Matrix& in, std::span<PooledText> texts);

private:
    // Texts of one task and head.
    void run_group(const kernels::Matrix& in, std::span<PooledText> texts);
    kernels::Matrix pool(const kernels::Matrix& in, std::span<const PooledText> texts, PoolingMode mode);
    kernels::Matrix embed(const kernels::Matrix& pooled);
    std::int64_t width_of(const PooledText& text) const;
    kernels::Matrix take_results(std::int64_t rows, std::int64_t columns);

    const ModelParts& parts_;
    kernels::Backend& backend_;
    const Activation hidden_;
    const Activation sums_;
    const Activation activated_;
    const Activation pooled_;
    const Activation results_in_;
    std::unique_ptr<kernels::Buffer> results_;
    std::int64_t results_taken_ = 0;  // floats
    // Kept between steps for their capacity.
    std::vector<kernels::PoolSegment> segments_;
    std::vector<float> factors_;
};

struct ChosenHead {
    const HiddenLayer* hidden = nullptr;  // the adapter's or the base's; nullptr: none
    const Linear* output = nullptr;
    std::shared_ptr<const Labels> labels;
};
// The head that does the task for this adapter, or for the base if adapter is null. nullopt: there is none.
std::optional<ChosenHead> choose_head(const ModelParts& parts, PoolingTask task, const Adapter* adapter);

}  // namespace lorry::engine
