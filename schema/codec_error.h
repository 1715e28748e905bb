// The wording of the codec's errors about fields. Used by the codec's files; shortened() also by the engine's readers of configs, by
// consumer/file and ops.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "schema/job.h"
#include "schema/json.h"

namespace lorry::schema {

// nullopt: no error.
using FieldError = std::optional<JobError>;

// Text from outside, shortened for a message: at most that many bytes, cut between characters.
std::string shortened(std::string_view text, std::size_t bytes_max = 60);
// A value's JSON, shortened for a message.
std::string shown(const Json& value);

// "field 'temperature' must be a number, not a string"
JobError wrong_type(std::string_view field, std::string_view expected, const Json& value);
// "field 'temperature' is 3.5; allowed is 0 to 2"
JobError wrong_value(std::string_view field, const Json& value, std::string_view allowed);
// "field 'url' is missing; it …". value: the field's, if it has one: "field 'url' is null; it …"; of another kind, the
// error is invalid_type.
JobError missing(std::string_view field, const Json* value, std::string_view advice);
// unsupported_field: the message must name the field.
JobError unsupported(std::string_view field, std::string message);
// invalid_value, with the caller's message.
JobError invalid(std::string_view field, std::string message);

}  // namespace lorry::schema
