// Reads tools, tool_choice and the other fields that say what a model may call and how it thinks. Called by the field table of
// codec_body.cpp.
#pragma once

#include "schema/codec_error.h"

namespace lorry::schema {

// Up to 128 functions of different names.
struct Tools {
    std::string json;  // the array, for the chat template; empty: there are none
    std::vector<ToolFunction> functions;
};
Expected<Tools, JobError> read_tools(const Json& value);

// "none", "auto", "required", or {"type":"function","function":{"name":…}}.
struct ToolChoice {
    ToolUse::Choice choice = ToolUse::Choice::none;
    std::string name;  // of the only function; empty: any
};
Expected<ToolChoice, JobError> read_tool_choice(const Json& value);

// What the model may call. choice: nullopt if the job leaves it out. The error says that the choice does not fit the tools.
Expected<ToolUse, JobError> tool_use_of(std::vector<ToolFunction> functions, const std::optional<ToolChoice>& choice, bool parallel);

}  // namespace lorry::schema
