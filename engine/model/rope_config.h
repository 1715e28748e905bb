// Reads what config.json says about rotary positions, in all generations of its keys. Called by model_config.cpp.
#pragma once

#include "engine/model/config_section.h"
#include "engine/model/model_config.h"
#include "engine/model/model_families.h"

namespace lorry::engine {

// Whether two values without members are equal, the second of which may be given in JSON. Numbers are compared by value: 1 equals 1.0.
bool is_equal(const schema::Json& value, std::string_view json);
bool are_equal(const schema::Json& one, const schema::Json& other);

// Sets all rope fields, and max_positions, which scaled kinds extend. The sizes must have been read. Throws
// std::runtime_error that names file, key and value.
void read_rope(const Section& config, const FamilyTraits& traits, ModelConfig& out);

}  // namespace lorry::engine
