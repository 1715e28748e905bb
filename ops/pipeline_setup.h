// Makes the pipeline's options from settings, for `worker` and `run`.
#pragma once

#include <string>

#include "consumer/pipeline.h"
#include "ops/settings.h"

namespace lorry::ops {

// worker: the name of this worker in results and statuses.
consumer::PipelineOptions pipeline_options(const Settings& settings, const engine::Engine& engine, const std::string& worker);

// What the settings allow jobs in flight to take.
consumer::InFlightLimits in_flight_limits(const Settings& settings, const engine::Engine& engine);

// The setting in_flight_tokens. If it is 0: two million or, if that is more, four batches of the longest jobs. Half of it is one job's
// limit, and one batch is ready when the other ends.
std::int64_t in_flight_tokens_of(const Settings& settings, std::int64_t context_max);

}  // namespace lorry::ops
