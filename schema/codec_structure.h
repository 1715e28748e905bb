// Reads what an answer must match. Called by the field table of codec_body.cpp.
#pragma once

#include <optional>

#include "schema/codec_error.h"
#include "schema/structure.h"

namespace lorry::schema {

// OpenAI's response_format. nullopt: {"type": "text"}, an answer of any form.
Expected<std::optional<Structure>, JobError> read_response_format(const Json& value);
// vLLM's structured_outputs: an object with one of json, json_object, regex, choice, grammar and structural_tag.
Expected<std::optional<Structure>, JobError> read_structured_outputs(const Json& value);

}  // namespace lorry::schema
