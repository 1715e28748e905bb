// Looks up what the adapters of a step's rows change in each norm and projection.
#include "engine/model/adapted_ops.h"

#include <algorithm>

namespace lorry::engine {

using kernels::Matrix;

void add_groups_among(std::span<const AdapterRows> groups, std::span<const std::int32_t> rows, std::vector<AdapterRows>& out) {
    for (const AdapterRows& group : groups) {
        const auto begin = std::lower_bound(rows.begin(), rows.end(), group.row_begin);
        const auto end = std::lower_bound(begin, rows.end(), group.row_begin + group.row_count);
        if (begin != end) out.push_back({begin - rows.begin(), end - begin, group.adapter});
    }
}

void AdaptedOps::embed(const EmbedCall& call) {
    own_embeddings_.clear();
    for (const AdapterRows& group : call.site.adapters) {
        const AdapterEmbedding* const change = group.adapter->embedding();
        if (change == nullptr) continue;
        for (std::int64_t row = group.row_begin; row < group.row_begin + group.row_count; ++row) {
            const auto own = change->find(call.step.tokens[static_cast<std::size_t>(row)]);
            if (own) own_embeddings_.push_back({.row = row, .table = own->table, .index = own->index});
        }
    }
    const ModelWeights& weights = call.weights;
    backend_.embed({.out = call.out,
                    .tokens = *weights.tokens,
                    .positions = weights.positions.get(),
                    .types = weights.types.get(),
                    .own = own_embeddings_,
                    .step = call.step});
    bias_groups_.clear();
    for (const AdapterRows& group : call.site.adapters) {
        const AdapterEmbedding* const change = group.adapter->embedding();
        if (change == nullptr || change->a == nullptr) continue;
        // Of all rows, as the step's tokens are; there are few columns. Other adapters may have more tokens than this one.
        const Matrix low = call.scratch.view_of(call.step.rows, change->a->in_features());
        own_embeddings_.clear();
        for (std::int64_t row = 0; row < call.step.rows; ++row) {
            if (call.step.tokens[static_cast<std::size_t>(row)] >= change->a->out_features())
                own_embeddings_.push_back({.row = row, .table = change->a.get(), .index = 0});
        }
        backend_.embed({.out = low, .tokens = *change->a, .own = own_embeddings_, .step = call.step});
        backend_.matmul({.out = call.out.slice_rows(group.row_begin, group.row_count),
                         .in = low.slice_rows(group.row_begin, group.row_count),
                         .weight = *change->b,
                         .accumulate = true});
        if (!change->scale.empty())
            bias_groups_.push_back({.row_begin = group.row_begin, .row_count = group.row_count, .scale = change->scale, .bias = {}});
    }
    if (!bias_groups_.empty()) backend_.group_bias({.out = call.out, .groups = bias_groups_});
}

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
    // Heads have different numbers of outputs, as vocabularies have.
    const bool is_head = call.projection == Projection::head;
    const auto replaced = [&](const Adapter& adapter) -> const ReplacedLinear* {
        const AdapterProjection* change = call.site.change_of(adapter, call.projection);
        return change != nullptr && change->whole ? &*change->whole : nullptr;
    };
    for_changed_rows(call.site.adapters, call.out.rows, replaced,
                     [&](std::int64_t begin, std::int64_t count, const ReplacedLinear* change) {
                         const kernels::PackedWeight& weight = change != nullptr ? *change->weight : call.weight;
                         const Matrix out = call.out.slice_rows(begin, count);
                         backend_.matmul({.out = is_head ? out.slice_columns(0, weight.out_features()) : out,
                                          .in = call.in.slice_rows(begin, count),
                                          .weight = weight,
                                          .bias = change != nullptr ? change->bias : call.bias,
                                          .accumulate = call.accumulate,
                                          .next = call.next});
                     });
    add_changes(call);
}

// add_changes multiplies the sums by the adapters' scales, so this first divides what the outputs are added to by them. Rows with and
// without scales then share one pass over the base's weight.
void AdaptedOps::divide_by_scales(const ProjectCall& call) {
    bias_groups_.clear();
    for (const AdapterRows& group : call.site.adapters) {
        const AdapterProjection* change = call.site.change_of(*group.adapter, call.projection);
        if (change == nullptr || change->scale.empty()) continue;
        CHECK(!change->inverse_scale.empty(), "projections that add to the residual have both");
        bias_groups_.push_back({.row_begin = group.row_begin, .row_count = group.row_count, .scale = change->inverse_scale, .bias = {}});
    }
    if (!bias_groups_.empty()) backend_.group_bias({.out = call.out, .groups = bias_groups_});
}

void AdaptedOps::activate(const ActivateCall& call) {
    const Linear& linear = call.mlp.gate_up;
    const kernels::PackedWeight* const next = call.mlp.down.weight.get();
    // Of an adapter's changes, only low-rank updates can be applied between a matmul and the activation of its outputs.
    lora_groups_.clear();
    bool is_low_rank = true;
    for (const AdapterRows& group : call.site.adapters) {
        const AdapterProjection* change = call.site.change_of(*group.adapter, Projection::gate_up);
        if (change == nullptr) continue;
        is_low_rank = is_low_rank && !change->whole && change->parts.empty() && change->scale.empty() && change->bias.empty();
        if (change->lora != nullptr) lora_groups_.push_back({group.row_begin, group.row_count, change->lora.get()});
    }
    if (is_low_rank && !config_.clamped_gate) {
        backend_.activated_matmul({.kind = config_.activation,
                                   .gated = config_.gated,
                                   .out = call.out,
                                   .sums = call.sums,
                                   .in = call.in,
                                   .weight = *linear.weight,
                                   .bias = linear.bias,
                                   .groups = lora_groups_,
                                   .next = next});
        return;
    }
    project({.site = call.site,
             .projection = Projection::gate_up,
             .weight = *linear.weight,
             .bias = linear.bias,
             .out = call.sums,
             .in = call.in,
             .next = next});
    if (config_.clamped_gate) {
        backend_.clamped_gate({.out = call.out,
                               .in = call.sums,
                               .alpha = static_cast<float>(config_.clamped_gate->alpha),
                               .limit = static_cast<float>(config_.clamped_gate->limit)});
    } else {
        backend_.activation({.kind = config_.activation, .gated = config_.gated, .out = call.out, .in = call.sums});
    }
}

void AdaptedOps::add_changes(const ProjectCall& call) {
    lora_groups_.clear();
    bias_groups_.clear();
    for (const AdapterRows& group : call.site.adapters) {
        const AdapterProjection* change = call.site.change_of(*group.adapter, call.projection);
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
    if (bias_groups_.empty()) return;
    // Adapters with another vocabulary than the base's change no biases and scales of the head.
    const bool is_head = call.projection == Projection::head;
    const Matrix out = is_head ? call.out.slice_columns(0, call.weight.out_features()) : call.out;
    backend_.group_bias({.out = out, .groups = bias_groups_});
}

}  // namespace lorry::engine
