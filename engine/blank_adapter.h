// An adapter that adds nothing to every projection of the layers: what the graphs of steps are made with, as those of any adapters follow
// them. Made by engine.cpp for as long as that takes.
#pragma once

#include <vector>

#include "engine/adapter.h"

namespace lorry::engine {

class BlankAdapter final : public Adapter {
public:
    BlankAdapter(const Model& model, kernels::Backend& backend);
    const AdapterInfo& info() const override { return info_; }
    const AdapterProjection* at(std::int64_t layer, Projection projection) const override;
    const Norm* norm_at(std::int64_t, NormSite) const override { return nullptr; }

private:
    const AdapterInfo info_;
    std::vector<AdapterProjection> projections_;  // in the order of Projection, the head left out
};

}  // namespace lorry::engine
