// The checked half of Packer and Backend: each function checks its arguments by contract.h and calls the backend's own.
#include "kernels/backend.h"

#include "kernels/contract.h"

namespace lorry::kernels {

std::unique_ptr<PackedWeight> Packer::pack_weight(std::span<const WeightPart> parts, WeightRole role) {
    contract::check_weight(parts, role);
    return do_pack_weight(parts, role);
}

std::unique_ptr<PackedLora> Packer::pack_lora(std::span<const LoraPart> parts) {
    contract::check_lora(parts);
    return do_pack_lora(parts);
}

std::unique_ptr<KvCache> Backend::make_kv_cache(const KvShape& shape, std::int64_t blocks, std::size_t slot_bytes) {
    contract::check_kv_cache(shape, blocks);
    return do_make_kv_cache(shape, blocks, slot_bytes);
}

void Backend::copy_block(KvCache& cache, BlockId from, BlockId to) {
    contract::check_copy(cache, from, to);
    do_copy_block(cache, from, to);
}

std::unique_ptr<Slot> Backend::make_slot(KvCache& cache, const SlotRange& range) {
    contract::check_slot(cache, range);
    return do_make_slot(cache, range);
}

void Backend::on_host(std::int64_t count, const std::function<void(std::int64_t)>& work) {
    for (std::int64_t i = 0; i < count; ++i) work(i);
}

void Backend::begin_step(const StepInputs& step) {
    contract::check_step(step, {.block_size = block_size(), .queued_max = steps_queued_max()});
    step_rows_ = step.rows;
    step_sequences_ = step.sequences;
    do_begin_step(step);
}

void Backend::run(const Op& op) {
    contract::check_op(op, {.rows = step_rows_, .block_size = block_size(), .sequences = step_sequences_});
    do_run(op);
}

void Backend::run_matmul_then_activation(const ActivatedMatmulArgs& args) {
    const MatmulArgs matmul{.out = args.sums, .in = args.in, .weight = args.weight, .bias = args.bias, .next = args.next};
    const LoraArgs lora{.out = args.sums, .in = args.in, .groups = args.groups};
    const ActivationArgs activation{.kind = args.kind, .gated = args.gated, .out = args.out, .in = args.sums};
    do_run(&matmul);
    if (!args.groups.empty()) do_run(&lora);
    do_run(&activation);
}

}  // namespace lorry::kernels
