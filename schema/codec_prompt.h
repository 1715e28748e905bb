// Reads prompts: chats, texts, token ids, choices and tools. Called by the field table of codec_body.cpp.
#pragma once

#include "schema/codec_error.h"

namespace lorry::schema {

// An array of chat messages as JSON text, with the arguments of tool calls as objects. Unknown members are passed on to the template.
Expected<std::string, JobError> read_messages(const Json& value);

// A string, a list of strings, a list of token ids or a list of such lists.
Expected<std::vector<TextPrompt>, JobError> read_prompts(std::string_view field, const Json& value);

// 0 or more. place: of the value, for the error.
Expected<std::int32_t, JobError> read_token_id(std::string_view place, const Json& value);

// At least two distinct strings, none empty.
Expected<std::vector<std::string>, JobError> read_choices(const Json& value);

// An array of {"type":"function","function":{"name",…}}, as JSON text.
Expected<std::string, JobError> read_tools(const Json& value);

}  // namespace lorry::schema
