// The attention op: makes its work lists, once per step and window; attention.cu computes them.
#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/views.h"

namespace lorry::kernels::cuda {

const CudaBackend::PlannedAttention& CudaBackend::planned_attention(const AttentionArgs& args, int padded_head_dim) {
    const AttentionHeads heads{.group = args.heads / args.kv_heads, .kv_heads = args.kv_heads, .padded_head_dim = padded_head_dim};
    const auto is_it = [&](const PlannedAttention& planned) { return planned.heads == heads && planned.window == args.window; };
    auto planned = std::ranges::find_if(planned_, is_it);
    if (planned == planned_.end()) {
        planned_.push_back({.heads = heads, .window = args.window});
        planned = std::prev(planned_.end());
    }
    if (std::exchange(planned->step, steps_begun_) == steps_begun_) return *planned;
    const AttentionPlan& plan = planned->plan;
    Tables& tables = step().tables;
    plan_attention(args.step.sequences, heads, args.window, planned->plan);
    const std::int64_t slots = std::max(plan.slots, attention_slots_most(attention_sequences_, attention_context_, heads));
    const std::size_t bytes = attention_workspace_bytes(slots, heads);
    const AttentionWork work{.blocks = step().blocks,
                             .narrow = tables.put(plan.narrow),
                             .wide = tables.put(plan.wide),
                             .merges = tables.put(plan.merges),
                             .narrow_count = int_of(std::ssize(plan.narrow)),
                             .wide_count = int_of(std::ssize(plan.wide)),
                             .merge_count = int_of(std::ssize(plan.merges)),
                             .workspace = planned->workspace.of<float>(bytes / sizeof(float))};
    const std::int64_t index = planned - planned_.begin();
    const AttentionSize size = attention_size(step_rows(), heads, processors_);
    // A graph launches only one kind of pieces, narrow or wide.
    const bool is_of_its_kind = size.wide > 0 ? plan.narrow.empty() : plan.wide.empty();
    if (has_works() && index < attention_works_most && is_of_its_kind) {
        step().attention_works.host[index] = work;
        planned->work = step().attention_works.device + index;
        planned->size = size;
    } else {
        planned->work = tables.put_one(work);
        planned->size = {work.narrow_count, work.wide_count, work.merge_count};
    }
    return *planned;
}

void CudaBackend::execute(const AttentionArgs& args) {
    CHECK(args.sinks.empty(), no_experts);
    CHECK(args.mask == AttentionMask::causal && args.bias_by_distance.rows == 0 && args.bias_by_token.rows == 0, no_pooling);
    const auto& cache = static_cast<const CudaKvCache&>(args.cache);
    if (args.step.rows == 0) return;
    const KvLayer layer = cache.layer(args.layer);
    const PlannedAttention& planned = planned_attention(args, layer.padded_head_dim);
    constexpr std::int64_t window_max = std::numeric_limits<std::int32_t>::max();
    Matrix out = args.out;
    JointRows joint;
    if (args.out.format == Format::fp8_rows) {
        out.format = Format::float32;
        joint = {
            .rows = view_of(args.out), .progress = step().row_progress, .parts = int_of(args.heads), .columns = int_of(args.out.columns)};
    }
    launch(AttentionTask{.out = view_of(out),
                         .joint = joint,
                         .qkv = view_of(args.qkv),
                         .heads = int_of(args.heads),
                         .head_dim = int_of(args.head_dim),
                         .scale = args.scale,
                         .has_cap = args.cap.has_value(),
                         .cap = args.cap.value_or(0.0F),
                         .window = static_cast<std::int32_t>(std::min(args.window.value_or(window_max), window_max)),
                         .cache = layer,
                         .work = planned.work,
                         .size = planned.size});
}

}  // namespace lorry::kernels::cuda
