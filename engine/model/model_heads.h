// What a model does with its last hidden states: the heads that config.json's architectures name, their labels, and how texts are pooled.
// Called by model_config.cpp.
#pragma once

#include <string_view>

#include "engine/model/config_section.h"
#include "engine/model/model_config.h"
#include "engine/model/model_families.h"

namespace lorry::engine {

// Sets `generates`, `fills_masks`, `labels`, `head`, `embedder` and how heads compute. The sizes must have been read. Throws
// std::runtime_error that names file, key and value.
void read_heads(const Section& config, const FamilyTraits& traits, ModelConfig& out);

// The kind of activation that config.json calls by this key; `absent` if the key is missing.
kernels::ActivationKind read_activation(const Section& config, const char* key, const char* absent);

// The labels of an adapter's head with `count` outputs: those of the config.json beside the adapter, if there is one; else the base's, if
// they are as many; else LABEL_0 and so on. base: may be null. The error names the key.
Expected<Labels, std::string> read_labels(std::string_view config_json, std::int64_t count, const Labels* base);

}  // namespace lorry::engine
