// Whether a model's weights fit into the machine's memory. Called by EngineSetup before it loads them, and by `check-model`.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "engine/model.h"
#include "ops/settings.h"

namespace lorry::ops {

// The bytes of the weights as they are stored on the device.
std::size_t weight_bytes_of(const Settings& settings, const engine::ModelReport& model);
// Why weights of that size cannot be loaded; nullopt: they can.
std::optional<std::string> weights_obstacle(std::size_t weight_bytes);

}  // namespace lorry::ops
