// Reserves what steps need of a device besides weights and the KV cache, before the first step runs: memory to compute with, and graphs of
// decoding steps. Called by engine.cpp, and by ops/engine_setup.cpp before it divides the memory.
#pragma once

#include "engine/engine.h"

namespace lorry::engine {

// Reserves the memory that steps of an engine with these options compute with, so that the device's free memory afterwards can be given to
// the KV cache. Does not depend on kv_bytes and graph_bytes. Call it at start, before an engine is made.
void reserve_steps(Model& model, kernels::Backend& backend, const EngineOptions& options);

// Makes graphs of decoding steps over this cache, within options.graph_bytes. With graph_bytes = 0, discards the graphs of an earlier
// engine.
void make_step_graphs(Model& model, kernels::Backend& backend, kernels::KvCache& cache, const EngineOptions& options);

}  // namespace lorry::engine
