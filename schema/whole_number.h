// Numbers in texts, whatever the locale is. Used by all layers.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace lorry::schema {

// A text as a number; nullopt: it is not a number, has something before or after it, or does not fit into the type.
template <typename Number>
std::optional<Number> parse_whole(std::string_view text) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

}  // namespace lorry::schema
