// The hash model, slowed down, in which a killer job's prompt makes something happen. Used by the workers of tests/faults and
// tests/simulation.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "engine/model/model.h"
#include "tests/faults/job_mix.h"

namespace lorry::faults {

class SlowModel final : public engine::Model {
public:
    // `on_killer`: at the first step of a killer job. `on_step`: at each step, with the rows that sample; takes the step's time.
    SlowModel(std::unique_ptr<engine::Model> inner, std::function<void()> on_killer, std::function<void(std::size_t)> on_step)
        : inner_(std::move(inner)), on_killer_(std::move(on_killer)), on_step_(std::move(on_step)) {}

    const engine::ModelConfig& config() const override { return inner_->config(); }
    kernels::KvShape kv_shape() const override { return inner_->kv_shape(); }
    std::size_t weight_bytes() const override { return inner_->weight_bytes(); }
    const std::string& fingerprint() const override { return inner_->fingerprint(); }
    std::int32_t rope_row(std::int64_t position, std::optional<std::int64_t> length) override { return inner_->rope_row(position, length); }
    std::optional<std::int64_t> rope_length(std::int64_t prompt_tokens, std::int64_t tokens_max) const override {
        return inner_->rope_length(prompt_tokens, tokens_max);
    }
    kernels::Matrix forward(const engine::ForwardArgs& args, kernels::KvCache& cache) override {
        for (const kernels::StepSequence& sequence : args.step.sequences) {
            const auto row = static_cast<std::size_t>(sequence.row_begin);
            if (sequence.position == 0 && args.step.tokens[row] == killer_token) on_killer_();
        }
        on_step_(args.step.sample_rows.size());
        return inner_->forward(args, cache);
    }

private:
    std::unique_ptr<engine::Model> inner_;
    std::function<void()> on_killer_;
    std::function<void(std::size_t)> on_step_;
};

}  // namespace lorry::faults
