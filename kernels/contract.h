// What the arguments of a backend's functions must satisfy on every device, CHECKed once before a device sees them; a failure says which op
// was called with which sizes. Called by the public functions of Packer and Backend (backend.cpp).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/device_objects.h"
#include "kernels/ops.h"

namespace lorry::kernels::contract {

void check_weight(std::span<const WeightPart> parts, WeightRole role);
void check_lora(std::span<const LoraPart> parts);
void check_kv_cache(const KvShape& shape, std::int64_t blocks);
void check_copy(const KvCache& cache, BlockId from, BlockId to);
void check_slot(const KvCache& cache, const SlotRange& range);

struct StepLimits {
    std::int64_t block_size = 0;
    std::int64_t queued_max = 1;
};
void check_step(const StepInputs& step, const StepLimits& limits);

// The step that was begun last, to which ops belong.
struct BegunStep {
    std::int64_t rows = 0;
    std::int64_t block_size = 0;
    std::span<const StepSequence> sequences{};  // as begin_step got them; ops must name the same ones
};
void check_op(const Op& op, const BegunStep& step);

}  // namespace lorry::kernels::contract
