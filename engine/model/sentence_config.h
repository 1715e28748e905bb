// The files that sentence-transformers adds to a model folder: how texts are pooled and cut, and which prompts they begin with. Called by
// model_config.cpp.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "engine/model/model_config.h"

namespace lorry::engine {

// Reads modules.json, the configs of its modules, sentence_bert_config.json and config_sentence_transformers.json into config.embedder, if
// the folder has the first of them. pooling: takes precedence over the folder's mode, and makes an embedder of a model without any. Throws
// std::runtime_error that names file, key and value. The config of the model itself must have been read.
void read_sentence_transformers(const std::filesystem::path& folder, std::optional<PoolingMode> pooling, ModelConfig& config);

// "mean" and so on, as --pooling names them.
std::optional<PoolingMode> pooling_mode_named(std::string_view name);
const char* name_of(PoolingMode mode);

}  // namespace lorry::engine
