// Reports what `lorry bench tune --device cuda` measured of the GPU's matmuls and the table rows that follow from it
// (kernels/cuda/cublaslt/matmul_table.h), as text and as JSON. Called by tune.cpp. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model_config.h"
#include "kernels/cuda/cublaslt/tuning.h"
#include "schema/json.h"

namespace lorry::ops {

// The matmuls of these models with inputs of this format, each shape once. Leaves out shapes that the table cannot hold (features that are
// not multiples of 8, or 16 for fp8) and, for fp8_rows, heads, which are not quantized.
std::vector<kernels::cuda::MatmulShape> matmul_shapes(std::span<const engine::ModelConfig> configs, kernels::Format inputs);

// How many times as fast as our own kernel: the geometric mean over the buckets. nullopt: no candidate supports the shape.
std::optional<double> gain_of(const kernels::cuda::TunedMatmul& matmul);

// Which shapes get rows: those that gain, or, for tests, all that any candidate supports.
enum class RowsOf : std::uint8_t { gains, all };
bool gets_rows(const kernels::cuda::TunedMatmul& matmul, RowsOf which);
// One line per range, ready to commit.
std::vector<std::string> table_rows(const kernels::cuda::Tuning& tuning, RowsOf which = RowsOf::gains);
// Returns the table with these rows in place of its rows for the same shapes on this chip with this library. Shapes that time ran out for
// before they had any row keep their old ones. Lines are complete.
std::string with_rows(std::string_view table, const kernels::cuda::Tuning& tuning, RowsOf which);

// One line: what was refused and why, what there was no time for, and the gain.
std::string finding_of(const kernels::cuda::TunedMatmul& matmul);
// A few sizes of each shape compared with the chip's limits and our own kernel, what was refused and why, and the rows.
std::string show_matmuls(const kernels::cuda::Tuning& tuning);
// The same for scripts, with all sizes.
schema::Json matmuls_json(const kernels::cuda::Tuning& tuning);

}  // namespace lorry::ops
