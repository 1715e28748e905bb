// What stands in urls: the parts of a target, and its escapes. Used by route.cpp and gateway.cpp. Pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lorry::ops {

// With %XX as the byte; nullopt: an escape is broken, or what comes out is not UTF-8.
std::optional<std::string> unescaped(std::string_view text);

// The fields of "/path?name=value&…", unescaped; nullopt: it is broken.
using Query = std::map<std::string, std::string>;
std::optional<Query> query_of(std::string_view target);
inline constexpr const char* broken_query = "the url's query has a broken escape, or names a field twice";

}  // namespace lorry::ops
