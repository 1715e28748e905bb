// Hexadecimal digits. Used by secret.cpp and ops/gateway/query.cpp.
#pragma once

#include <cstdint>
#include <optional>

namespace lorry::schema {

// The value of a lower-case hexadecimal digit; nullopt: it is not one.
constexpr std::optional<std::uint8_t> hex_digit_of(char letter) {
    if (letter >= '0' && letter <= '9') return static_cast<std::uint8_t>(letter - '0');
    if (letter >= 'a' && letter <= 'f') return static_cast<std::uint8_t>(letter - 'a' + 10);
    return std::nullopt;
}

}  // namespace lorry::schema
