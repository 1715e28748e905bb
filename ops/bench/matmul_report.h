// Prints what `lorry bench tune --device cuda` measured of the GPU's matmuls, and the table rows that follow from it
// (kernels/cuda/cublaslt/matmul_table.h), as text and as JSON. Called by tune.cpp. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model_config.h"
#include "kernels/cuda/cublaslt/tuning.h"
#include "schema/json.h"

namespace lorry::ops {

// The matmuls of these models over such inputs, each shape once; without those that the table cannot hold (features that are no multiples
// of 8, or of 16), and of fp8_rows without heads, which stay wide.
std::vector<kernels::cuda::MatmulShape> matmul_shapes(std::span<const engine::ModelConfig> configs, kernels::Format inputs);

// How many times as fast as our own kernel: the geometric mean over the buckets. nullopt: no candidate serves the shape.
std::optional<double> gain_of(const kernels::cuda::TunedMatmul& matmul);

// Which shapes get rows: those that gain, or all that any candidate serves, as tests want them.
enum class RowsOf : std::uint8_t { gains, all };
bool gets_rows(const kernels::cuda::TunedMatmul& matmul, RowsOf which);
// A line for each range, ready to commit.
std::vector<std::string> table_rows(const kernels::cuda::Tuning& tuning, RowsOf which = RowsOf::gains);
// The table with these rows in the place of those that it has of the same shapes on this chip with this library, but for shapes that time
// ran out for before they had any. Its lines are whole.
std::string with_rows(std::string_view table, const kernels::cuda::Tuning& tuning, RowsOf which);

// What was refused and why, what time was not left for, and the gain, in a line.
std::string finding_of(const kernels::cuda::TunedMatmul& matmul);
// A few sizes of each shape against the chip's limits and our own kernel, what was refused and why, and the rows.
std::string show_matmuls(const kernels::cuda::Tuning& tuning);
// All sizes.
schema::Json matmuls_json(const kernels::cuda::Tuning& tuning);

}  // namespace lorry::ops
