// Measures whether loading adapters delays the running batch. Called by `lorry bench loading`.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/adapter_cache.h"
#include "ops/engine_setup.h"

namespace lorry::ops {

struct LoadingShape {
    std::int64_t requests = 64;  // requests for the base, as many as run at a time; they draw tokens all the time
    std::int64_t input_tokens = 128;
    std::int64_t quiet_steps = 32;  // before each load
    std::vector<engine::AdapterSource> adapters;
};

// Delays are the longest step minus the median of the quiet steps before it, in seconds.
struct LoadingResult {
    double step_seconds = 0.0;  // the median of all quiet steps
    double quiet_delay = 0.0;   // in quiet steps: not caused by adapters
    double loading_delay = 0.0;
    std::uint64_t loading_steps = 0;
    double load_seconds = 0.0;  // per adapter on average, from its first request
};

// Loads the adapters one after another, for requests that find the batch full. Throws std::runtime_error when the context is full before
// all adapters are loaded.
LoadingResult run_loading(EngineSetup& setup, const LoadingShape& shape);

}  // namespace lorry::ops
