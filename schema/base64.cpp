// Encodes three bytes as four characters.
#include "schema/base64.h"

#include <cstdint>

namespace lorry::schema {
namespace {

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string to_base64(std::string_view bytes) {
    std::string text;
    text.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const std::size_t left = bytes.size() - i;
        const auto byte = [&](std::size_t k) { return k < left ? std::uint32_t{static_cast<unsigned char>(bytes[i + k])} : 0U; };
        const std::uint32_t word = byte(0) << 16 | byte(1) << 8 | byte(2);
        text += alphabet[word >> 18];
        text += alphabet[word >> 12 & 63];
        text += left > 1 ? alphabet[word >> 6 & 63] : '=';
        text += left > 2 ? alphabet[word & 63] : '=';
    }
    return text;
}

std::optional<std::string> from_base64(std::string_view text) {
    if (text.size() % 4 != 0) return std::nullopt;
    std::string bytes;
    bytes.reserve(text.size() / 4 * 3);
    for (std::size_t i = 0; i < text.size(); i += 4) {
        const bool last = i + 4 == text.size();
        const std::size_t padding = last && text[i + 3] == '=' ? (text[i + 2] == '=' ? 2 : 1) : 0;
        std::uint32_t word = 0;
        for (std::size_t k = 0; k < 4; ++k) {
            const auto digit = k + padding >= 4 ? 0 : alphabet.find(text[i + k]);
            if (digit == std::string_view::npos) return std::nullopt;
            word = word << 6 | static_cast<std::uint32_t>(digit);
        }
        for (std::size_t k = 0; k < 3 - padding; ++k) bytes += static_cast<char>(word >> (16 - 8 * k) & 255);
        if (padding > 0 && (word & (padding == 2 ? 0xFFFFU : 0xFFU)) != 0) return std::nullopt;
    }
    return bytes;
}

}  // namespace lorry::schema
