// Looks up what the adapters of a step's rows change in each norm and projection.
#include "engine/model/adapted_ops.h"

namespace lorry::engine {

using kernels::Matrix;

void AdaptedOps::normalize(const NormCall& call) {
    const auto changed = [&](const Adapter& adapter) { return adapter.norm_at(call.site.layer, call.norm_site); };
    for_changed_rows(call.site.adapters, call.in.rows, changed, [&](std::int64_t begin, std::int64_t count, const Norm* change) {
        const Norm& norm = change != nullptr ? *change : call.base;
        backend_.norm({.kind = norm.weight.empty() ? kernels::NormKind::none : config_.norm,
                       .out = call.out.slice_rows(begin, count),
                       .in = call.in.slice_rows(begin, count),
                       .weight = norm.weight,
                       .bias = norm.bias,
                       .epsilon = static_cast<float>(config_.norm_epsilon),
                       .in_place = call.base.in_place});
    });
}

void AdaptedOps::project(const ProjectCall& call) {
    if (call.accumulate) divide_by_scales(call);
    const auto replaced = [&](const Adapter& adapter) -> const ReplacedLinear* {
        const AdapterProjection* change = adapter.at(call.site.layer, call.projection);
        return change != nullptr && change->whole ? &*change->whole : nullptr;
    };
    for_changed_rows(call.site.adapters, call.out.rows, replaced,
                     [&](std::int64_t begin, std::int64_t count, const ReplacedLinear* change) {
                         backend_.matmul({.out = call.out.slice_rows(begin, count),
                                          .in = call.in.slice_rows(begin, count),
                                          .weight = change != nullptr ? *change->weight : call.weight,
                                          .bias = change != nullptr ? change->bias : call.bias,
                                          .accumulate = call.accumulate,
                                          .next = call.next});
                     });
    add_changes(call);
}

// What the outputs are added to is divided by the scales that add_changes multiplies to the sums. So rows with and without scales share one
// pass over the base's weight.
void AdaptedOps::divide_by_scales(const ProjectCall& call) {
    bias_groups_.clear();
    for (const AdapterRows& group : call.site.adapters) {
        const AdapterProjection* change = group.adapter->at(call.site.layer, call.projection);
        if (change == nullptr || change->scale.empty()) continue;
        bias_groups_.push_back({.row_begin = group.row_begin, .row_count = group.row_count, .scale = change->inverse_scale, .bias = {}});
    }
    if (!bias_groups_.empty()) backend_.group_bias({.out = call.out, .groups = bias_groups_});
}

void AdaptedOps::add_changes(const ProjectCall& call) {
    lora_groups_.clear();
    bias_groups_.clear();
    for (const AdapterRows& group : call.site.adapters) {
        const AdapterProjection* change = group.adapter->at(call.site.layer, call.projection);
        if (change == nullptr) continue;
        for (const ReplacedLinear& part : change->parts) {
            const Matrix rows = call.out.slice_rows(group.row_begin, group.row_count);
            backend_.matmul({.out = rows.slice_columns(part.out_begin, part.weight->out_features()),
                             .in = call.in.slice_rows(group.row_begin, group.row_count),
                             .weight = *part.weight,
                             .bias = part.bias});
        }
        if (change->lora != nullptr) lora_groups_.push_back({group.row_begin, group.row_count, change->lora.get()});
        if (change->scale.empty() && change->bias.empty()) continue;
        bias_groups_.push_back({.row_begin = group.row_begin, .row_count = group.row_count, .scale = change->scale, .bias = change->bias});
    }
    if (!lora_groups_.empty()) backend_.lora({.out = call.out, .in = call.in, .groups = lora_groups_});
    if (!bias_groups_.empty()) backend_.group_bias({.out = call.out, .groups = bias_groups_});
}

}  // namespace lorry::engine
