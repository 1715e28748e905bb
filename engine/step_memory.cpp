// Runs the ops of a step once for the device, with an adapter that changes nothing: steps with any adapters have the same ops.
#include "engine/step_memory.h"

#include <algorithm>
#include <vector>

#include "engine/model/adapter.h"

namespace lorry::engine {
namespace {

// An adapter of rank 1, all zeros, on every projection of the layers.
class BlankAdapter final : public Adapter {
public:
    BlankAdapter(const Model& model, kernels::Backend& backend) {
        const auto& linears = model.layout().linears;
        for (const Projection projection : {Projection::qkv, Projection::output, Projection::gate_up, Projection::down}) {
            const auto module = std::ranges::find(linears, projection, &LinearModule::projection);
            const std::int64_t in_features = module->in_features;
            const std::int64_t out_features = module->projection_out;
            const std::vector<float> zeros(static_cast<std::size_t>(std::max(in_features, out_features)), 0.0F);
            const kernels::LoraPart part{.a = {.data = zeros.data(), .out_features = 1, .in_features = in_features},
                                         .b = {.data = zeros.data(), .out_features = out_features, .in_features = 1}};
            projections_.emplace_back().lora = backend.pack_lora({&part, 1});
        }
    }
    const AdapterInfo& info() const override { return info_; }
    const AdapterProjection* at(std::int64_t, Projection projection) const override {
        const auto index = static_cast<std::size_t>(projection);
        return index < projections_.size() ? &projections_[index] : nullptr;
    }
    const AdapterProjection* at_expert(std::int64_t, std::int64_t, Projection) const override { return nullptr; }
    const Norm* norm_at(std::int64_t, NormSite) const override { return nullptr; }

private:
    const AdapterInfo info_;
    std::vector<AdapterProjection> projections_;  // in the order of Projection, without the head
};

// Runs all ops of a step with `blank` for all rows. The results are meaningless.
void forward_blank(const kernels::StepInputs& step, const BlankAdapter& blank, Model& model, kernels::KvCache& cache) {
    const AdapterRows all{.row_begin = 0, .row_count = step.rows, .adapter = &blank};
    model.forward({.step = step, .adapters = {&all, 1}}, cache);
}

}  // namespace

void reserve_steps(Model& model, kernels::Backend& backend, const EngineOptions& options) {
    const BlankAdapter blank(model, backend);
    const auto cache = backend.make_kv_cache(model.kv_shape(), 1, 0);
    backend.reserve_steps({.largest = {.rows = options.step_rows_max,
                                       .sample_rows = std::min(options.step_rows_max, options.sample_rows_max()),
                                       .sequences = options.sequences_max,
                                       .context = model.config().max_positions,
                                       .vocabulary = model.config().vocabulary},
                           .ops = [&](const kernels::StepInputs& step) { forward_blank(step, blank, model, *cache); }});
}

void make_step_graphs(Model& model, kernels::Backend& backend, kernels::KvCache& cache, const EngineOptions& options) {
    if (options.graph_bytes == 0) return backend.make_graphs({});
    const BlankAdapter blank(model, backend);
    backend.make_graphs({.rows_max = options.sequences_max, .bytes = options.graph_bytes, .ops = [&](const kernels::StepInputs& step) {
                             forward_blank(step, blank, model, cache);
                         }});
}

}  // namespace lorry::engine
