// Reads urls by hand: RFC 3986, 2.1 and 3.4.
#include "ops/gateway/query.h"

#include <algorithm>
#include <utility>

#include "schema/ascii.h"
#include "schema/codec_error.h"
#include "schema/hex.h"

namespace lorry::ops {

std::optional<std::string> unescaped(std::string_view text) {
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            plain += text[i];
            continue;
        }
        const std::string digits = schema::lower_case(text.substr(i + 1, 2));
        const auto high = digits.size() == 2 ? schema::hex_digit_of(digits[0]) : std::nullopt;
        const auto low = high ? schema::hex_digit_of(digits[1]) : std::nullopt;
        if (!low) return std::nullopt;
        plain += static_cast<char>(*high * 16 + *low);
        i += 2;
    }
    return schema::is_valid_utf8(plain) ? std::optional(std::move(plain)) : std::nullopt;
}

std::optional<Query> query_of(std::string_view target) {
    Query fields;
    const std::size_t begin = target.find('?');
    std::string_view rest = begin == std::string_view::npos ? std::string_view() : target.substr(begin + 1);
    while (!rest.empty()) {
        const std::string_view part = rest.substr(0, rest.find('&'));
        rest.remove_prefix(std::min(part.size() + 1, rest.size()));
        if (part.empty()) continue;
        const std::size_t equals = std::min(part.find('='), part.size());
        const auto name = unescaped(part.substr(0, equals));
        const auto value = unescaped(part.substr(std::min(equals + 1, part.size())));
        if (!name || !value || !fields.emplace(*name, *value).second) return std::nullopt;
    }
    return fields;
}

}  // namespace lorry::ops
