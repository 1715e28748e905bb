// Builds the error texts that several codec files share.
#include "schema/codec_error.h"

#include <fmt/format.h>

namespace lorry::schema {
namespace {

const char* with_article(const Json& value) {
    const std::string_view kind = value.kind();
    if (kind == "null") return "null";
    if (kind == "boolean") return "a boolean";
    if (kind == "integer" || kind == "number") return "a number";
    if (kind == "string") return "a string";
    return kind == "array" ? "an array" : "an object";
}

}  // namespace

int JobError::status_code() const {
    const std::optional<int> status = row_of(code).status_code;
    CHECK(status, "an error that a job gets as its response has an HTTP status");
    return *status;
}

std::string text_of(const JobError& error) { return fmt::format("{}: {}", name_of(error.code), error.message); }

std::string shortened(std::string_view text, std::size_t bytes_max) {
    if (text.size() <= bytes_max) return std::string(text);
    std::size_t end = bytes_max;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    return std::string(text.substr(0, end)) + "…";
}

std::string shown(const Json& value) { return shortened(value.dump()); }

JobError wrong_type(std::string_view field, std::string_view expected, const Json& value) {
    const std::string name = shortened(field);
    return {.code = ErrorCode::invalid_type,
            .param = name,
            .message = fmt::format("field '{}' must be {}, not {}", name, expected, with_article(value))};
}

JobError wrong_value(std::string_view field, const Json& value, std::string_view allowed) {
    return invalid(field, fmt::format("field '{}' is {}; allowed is {}", shortened(field), shown(value), allowed));
}

JobError missing(std::string_view field, const Json* value, std::string_view advice) {
    return {.code = value == nullptr || value->is_null() ? ErrorCode::missing_field : ErrorCode::invalid_type,
            .param = std::string(field),
            .message = fmt::format("field '{}' is {}; {}", field, value == nullptr ? "missing" : shown(*value), advice)};
}

JobError unsupported(std::string_view field, std::string message) {
    return {.code = ErrorCode::unsupported_field, .param = shortened(field), .message = std::move(message)};
}

JobError invalid(std::string_view field, std::string message) {
    return {.code = ErrorCode::invalid_value, .param = shortened(field), .message = std::move(message)};
}

}  // namespace lorry::schema
