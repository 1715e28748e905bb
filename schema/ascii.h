// Letters of ASCII, whatever the locale is. Used by all layers.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace lorry::schema {

// The text with A to Z as a to z; other bytes stay.
inline std::string lower_case(std::string_view text) {
    std::string lower(text);
    std::ranges::transform(lower, lower.begin(),
                           [](char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + ('a' - 'A')) : letter; });
    return lower;
}

}  // namespace lorry::schema
