// From settings to the pipeline's options. What `worker` and `run` share.
#pragma once

#include <string>

#include "consumer/pipeline.h"
#include "ops/settings.h"

namespace lorry::ops {

// worker: its name, in results and statuses.
consumer::PipelineOptions pipeline_options(const Settings& settings, const engine::Engine& engine, const std::string& worker);

// The setting; by default a million tokens, or two batches of the longest jobs: one that runs, and the next one ready when it ends.
std::int64_t in_flight_tokens_of(const Settings& settings, std::int64_t context_max);

}  // namespace lorry::ops
