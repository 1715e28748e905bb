// Measures what narrower weights cost in quality: runs the same jobs with float32, bfloat16, int8, int4 and, on a GPU, fp8 weights, and
// compares the results with float32. Called by `lorry bench loss`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ops/adapter_folders.h"
#include "ops/engine_setup.h"
#include "schema/json.h"

namespace lorry::ops {

struct LossRow {
    schema::Json circumstances;
    std::string weights;      // "int8"
    double perplexity = 0.0;  // over the prompts' tokens
    std::int64_t tokens = 0;  // prompt tokens that were scored
    std::int64_t answers = 0;
    std::int64_t answers_same = 0;  // equal to float32's answers, token for token
};

// Runs the first `jobs_max` valid jobs of a file greedily. Throws UsageError when none of its jobs can be run.
std::vector<LossRow> measure_loss(const Settings& settings, const std::filesystem::path& jobs, std::int64_t jobs_max);

}  // namespace lorry::ops
