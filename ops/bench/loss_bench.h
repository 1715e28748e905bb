// What narrower weights cost in quality: the same jobs with float32, bfloat16, int8, int4 and, where there is a GPU, fp8 weights, compared
// with float32. Called by `lorry bench loss`.
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
    double perplexity = 0.0;  // of the prompts' tokens
    std::int64_t tokens = 0;  // of prompts, that were scored
    std::int64_t answers = 0;
    std::int64_t answers_same = 0;  // as float32 writes them, token for token
};

// Reads the first `jobs_max` good jobs of a file, runs them greedily. Throws UsageError when no job of the file can be run.
std::vector<LossRow> measure_loss(const Settings& settings, const std::filesystem::path& jobs, std::int64_t jobs_max);

}  // namespace lorry::ops
