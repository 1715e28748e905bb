// Looks for the delimiter, and passes on what is before it.
#include "ops/gateway/multipart.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "schema/ascii.h"
#include "schema/json.h"

namespace lorry::ops {
namespace {

constexpr std::string_view line_end = "\r\n";
constexpr std::string_view blanks = " \t";

std::string_view trimmed(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(blanks);
    return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// Takes NAME=VALUE or NAME="VALUE" and a semicolon off the front. In quotes, a backslash stands before a quote or a backslash.
struct Parameter {
    std::string name;  // in lower case
    std::string value;
};
std::optional<Parameter> next_parameter(std::string_view& text) {
    text = trimmed(text);
    while (text.starts_with(';')) text = trimmed(text.substr(1));
    const std::size_t equals = text.find('=');
    if (equals == text.npos) return std::nullopt;
    Parameter parameter{.name = schema::lower_case(trimmed(text.substr(0, equals))), .value = {}};
    text = trimmed(text.substr(equals + 1));
    if (!text.starts_with('"')) {
        const std::size_t end = std::min(text.find(';'), text.size());
        parameter.value = trimmed(text.substr(0, end));
        text.remove_prefix(end);
        return parameter;
    }
    for (std::size_t i = 1; i < text.size(); ++i) {
        if (text[i] == '"') {
            text.remove_prefix(i + 1);
            return parameter;
        }
        if (text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == '"' || text[i + 1] == '\\')) ++i;
        parameter.value += text[i];
    }
    return std::nullopt;
}

// The value of a field that begins with `word` and a semicolon: its parameters; nullopt: it does not.
std::optional<std::string_view> parameters_after(std::string_view value, std::string_view word) {
    const std::size_t end = std::min(value.find(';'), value.size());
    if (schema::lower_case(trimmed(value.substr(0, end))) != word) return std::nullopt;
    return value.substr(end);
}

// What the header of a part says.
std::optional<FormPart> part_of(std::string_view header) {
    while (!header.empty()) {
        const std::size_t end = std::min(header.find(line_end), header.size());
        const std::string_view line = header.substr(0, end);
        header.remove_prefix(std::min(end + line_end.size(), header.size()));
        const std::size_t colon = line.find(':');
        if (colon == line.npos || schema::lower_case(line.substr(0, colon)) != "content-disposition") continue;
        auto text = parameters_after(line.substr(colon + 1), "form-data");
        if (!text) return std::nullopt;
        FormPart part;
        bool is_named = false;
        while (auto parameter = next_parameter(*text)) {
            if (parameter->name == "name") {
                part.name = std::move(parameter->value);
                is_named = true;
            } else if (parameter->name == "filename") {
                part.filename = std::move(parameter->value);
            }
        }
        return is_named ? std::optional(std::move(part)) : std::nullopt;
    }
    return std::nullopt;
}

}  // namespace

std::optional<std::string> boundary_of(std::string_view content_type) {
    constexpr std::size_t boundary_bytes_max = 70;  // RFC 2046, 5.1.1
    auto text = parameters_after(content_type, "multipart/form-data");
    if (!text) return std::nullopt;
    while (auto parameter = next_parameter(*text)) {
        if (parameter->name != "boundary") continue;
        const std::string& value = parameter->value;
        const bool is_plain = std::ranges::all_of(value, [](char letter) { return letter >= 0x20 && letter < 0x7f; });
        if (value.empty() || value.size() > boundary_bytes_max || !is_plain || value.ends_with(' ')) return std::nullopt;
        return std::move(parameter->value);
    }
    return std::nullopt;
}

FormReader::FormReader(const std::string& boundary, FormListener& listener) : delimiter_("\r\n--" + boundary), listener_(listener) {}

std::optional<std::string> FormReader::take(std::string_view bytes) {
    unread_ += bytes;
    return advance();
}

std::optional<std::string> FormReader::advance() {
    bool waits = false;  // for more bytes
    while (!waits) {
        std::optional<std::string> fault;
        switch (place_) {
            case Place::preamble:
            case Place::body: fault = take_body(waits); break;
            case Place::after_delimiter: fault = take_after_delimiter(waits); break;
            case Place::header: fault = take_header(waits); break;
            case Place::epilogue:
                unread_.clear();
                waits = true;
                break;
        }
        if (fault) return fault;
    }
    return std::nullopt;
}

// Up to the next delimiter. The preamble is of no concern.
std::optional<std::string> FormReader::take_body(bool& waits) {
    const std::size_t found = unread_.find(delimiter_);
    const bool ends = found != unread_.npos;
    const std::size_t certain = ends ? found : unread_.size() - std::min(unread_.size(), delimiter_.size() - 1);
    if (place_ == Place::body && certain > 0) {
        if (auto fault = listener_.on_bytes(std::string_view(unread_).substr(0, certain))) return fault;
    }
    unread_.erase(0, certain + (ends ? delimiter_.size() : 0));
    waits = !ends;
    if (!ends) return std::nullopt;
    const bool was_body = std::exchange(place_, Place::after_delimiter) == Place::body;
    return was_body ? listener_.on_part_end() : std::nullopt;
}

std::optional<std::string> FormReader::take_after_delimiter(bool& waits) {
    if (unread_.starts_with("--")) {
        place_ = Place::epilogue;
        return std::nullopt;
    }
    const std::size_t begin = std::min(unread_.find_first_not_of(blanks), unread_.size());
    if (begin > header_bytes_max) return "a line after a boundary is too long";
    waits = unread_.size() < begin + line_end.size();
    if (waits) return std::nullopt;
    if (unread_.compare(begin, line_end.size(), line_end) != 0) return "a boundary is not at the end of its line";
    if (++parts_ > parts_max) return fmt::format("it has more than {} parts", parts_max);
    unread_.erase(0, begin);  // the line's end stays: a header may be empty
    place_ = Place::header;
    return std::nullopt;
}

std::optional<std::string> FormReader::take_header(bool& waits) {
    const std::size_t end = unread_.find("\r\n\r\n");
    if (std::min(end, unread_.size()) > header_bytes_max) return fmt::format("a part's header has more than {} bytes", header_bytes_max);
    if (end == unread_.npos) {
        waits = true;
        return std::nullopt;
    }
    const auto part = part_of(std::string_view(unread_).substr(0, end));
    if (!part) return R"(a part has no Content-Disposition: form-data; name="…")";
    if (!schema::is_valid_utf8(part->name) || (part->filename && !schema::is_valid_utf8(*part->filename)))
        return "a part's name is not UTF-8";
    unread_.erase(0, end + 2 * line_end.size());
    place_ = Place::body;
    return listener_.on_part(*part);
}

std::optional<std::string> FormReader::finish() const {
    if (place_ == Place::epilogue) return std::nullopt;
    return "it breaks off before its last boundary";
}

}  // namespace lorry::ops
