// Encodes one byte after the other.
#include "consumer/file/encoding.h"

#include <array>

namespace lorry::consumer {
namespace {

// The characters of the bytes 0x80 to 0x9F in Windows-1252.
constexpr std::array<char16_t, 32> windows1252_high = {
    0x20AC, 0x0081, 0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0x008D, 0x017D, 0x008F,
    0x0090, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x009D, 0x017E, 0x0178};

void append(std::string& text, unsigned character) {
    if (character < 0x80) {
        text += static_cast<char>(character);
    } else if (character < 0x800) {
        text += static_cast<char>(0xC0U | character >> 6U);
        text += static_cast<char>(0x80U | (character & 0x3FU));
    } else {
        text += static_cast<char>(0xE0U | character >> 12U);
        text += static_cast<char>(0x80U | (character >> 6U & 0x3FU));
        text += static_cast<char>(0x80U | (character & 0x3FU));
    }
}

}  // namespace

std::string to_utf8(std::string_view text, TextEncoding encoding) {
    if (encoding == TextEncoding::utf8) return std::string(text);
    std::string out;
    out.reserve(text.size());
    for (const char letter : text) {
        const unsigned byte = static_cast<unsigned char>(letter);
        const bool differs = encoding == TextEncoding::windows1252 && byte >= 0x80 && byte < 0xA0;
        append(out, differs ? windows1252_high[byte - 0x80] : byte);
    }
    return out;
}

}  // namespace lorry::consumer
