// An adapter's folder as a whole: its weights (model/adapter.h), and the tokenizer and chat template beside them (text/model_text.h).
// Called by adapter_cache.cpp, and by ops/ to check and register adapters.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "engine/model/adapter.h"
#include "engine/text/model_text.h"
#include "schema/check.h"

namespace lorry::engine {

// inspect_adapter() with the text that the folder has of its own, if any. The error names the file.
Expected<AdapterInfo, std::string> inspect_adapter(const std::filesystem::path& folder, const ModelConfig& config, const ModelTexts& texts);

// AdapterFiles::read() with that text: its hash is part of expected_hash.
Expected<std::unique_ptr<AdapterFiles>, AdapterError> read_adapter(const std::filesystem::path& folder, const std::string& expected_hash,
                                                                   const Model& model, const ModelTexts& texts);

}  // namespace lorry::engine
