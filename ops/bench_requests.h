// What the benchmarks of `lorry bench` share: made-up prompts, and the quantiles of what they measure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model_config.h"

namespace lorry::ops {

// Pseudo-random tokens, the same for the same number.
std::vector<kernels::TokenId> made_up_prompt(const engine::ModelConfig& config, std::uint64_t number, std::int64_t tokens);

// The least of the ascending values that `share` of them do not exceed.
double quantile(std::span<const double> ascending, double share);

}  // namespace lorry::ops
