// What the benchmarks of `lorry bench` share: made-up prompts, the quantiles of what they measure, and the files that they write.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "engine/model_config.h"

namespace lorry::ops {

// Pseudo-random tokens, the same for the same number.
std::vector<kernels::TokenId> made_up_prompt(const engine::ModelConfig& config, std::uint64_t number, std::int64_t tokens);

// The least of the ascending values that `share` of them do not exceed.
double quantile(std::span<const double> ascending, double share);

// Throws std::runtime_error naming the file.
void write_text(const std::filesystem::path& file, std::string_view text);

}  // namespace lorry::ops
