// The encodings of an input file's text. Called by reader.cpp and by the flags of `lorry run`. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lorry::consumer {

enum class TextEncoding : std::uint8_t { utf8, latin1, windows1252 };

// UTF-8 is returned as it is, well-formed or not. In the others each byte is a character; bytes that Windows-1252 leaves open are control
// characters, as in browsers (encoding.spec.whatwg.org).
std::string to_utf8(std::string_view text, TextEncoding encoding);

}  // namespace lorry::consumer
