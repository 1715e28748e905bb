// Whether a model fits into memory, and with how many tokens of context. Called by EngineSetup before it loads the model, and by
// `check-model`.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "engine/model/model.h"
#include "ops/engine_setup.h"

namespace lorry::ops {

// The size of one cached token, in all layers.
std::size_t kv_token_bytes_of(const kernels::Backend& backend, const kernels::KvShape& shape);

struct FreeMemory {
    std::size_t bytes = 0;  // before the weights are loaded
    MemoryOf of = MemoryOf::machine;
};

// What is known of the model without its weights. Its parameters include those of Dense modules, which have files of their own. Throws
// std::runtime_error like engine::inspect_model().
engine::ModelReport inspect_model(const Settings& settings);
// Limits the context of a model with rotary positions to the tokens that the KV cache can hold. Returns the bytes of the weights, as they
// are stored on the device, and of the table of these positions. kv_token_bytes: the size of one cached token.
std::size_t fit_to_memory(const Settings& settings, const FreeMemory& memory, std::size_t kv_token_bytes, engine::ModelReport& model);
// Why weights and a table of that size cannot be loaded into what is available, both in bytes; nullopt: they can.
std::optional<std::string> weights_obstacle(std::size_t weight_bytes, std::size_t available);

}  // namespace lorry::ops
