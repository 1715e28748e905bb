// Whether an adapter's folder fits a model, found without reading its weights. Called by ops/adapter_folders.cpp; implemented in
// model/adapter.cpp.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "engine/model/model_config.h"

namespace lorry::engine {

// The checks of inspect_adapter() (model/adapter.h), but for those of the tensors' values: config keys, names, shapes and dtypes. The error
// also names the base model for which the adapter's config was written. nullopt: it fits, as far as these say.
std::optional<std::string> find_adapter_fault(const std::filesystem::path& folder, const ModelConfig& config);

}  // namespace lorry::engine
