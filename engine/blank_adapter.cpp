// Rank 1, all zeros.
#include "engine/blank_adapter.h"

#include <algorithm>

namespace lorry::engine {

BlankAdapter::BlankAdapter(const Model& model, kernels::Backend& backend) {
    const auto& linears = model.layout().linears;
    for (const Projection projection : {Projection::qkv, Projection::output, Projection::gate_up, Projection::down}) {
        const auto module = std::ranges::find(linears, projection, &LinearModule::projection);
        const std::int64_t in_features = module->in_features;
        const std::int64_t out_features = out_features_of(model.config(), projection);
        const std::vector<float> zeros(static_cast<std::size_t>(std::max(in_features, out_features)), 0.0F);
        const kernels::LoraPart part{.a = {.data = zeros.data(), .out_features = 1, .in_features = in_features},
                                     .b = {.data = zeros.data(), .out_features = out_features, .in_features = 1}};
        projections_.emplace_back().lora = backend.pack_lora({&part, 1});
    }
}

const AdapterProjection* BlankAdapter::at(std::int64_t, Projection projection) const {
    const auto index = static_cast<std::size_t>(projection);
    return index < projections_.size() ? &projections_[index] : nullptr;
}

}  // namespace lorry::engine
