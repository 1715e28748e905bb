// Lists of names: as a sentence, shortened to the first few, and what occurs twice in one. Used by table_rows.cpp, `lorry run` and
// `lorry check-model`.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "schema/codec_error.h"

namespace lorry::consumer {

// "a, b and 3 more", with at most `most` names, each shortened.
inline std::string listed(const std::vector<std::string>& names, std::size_t most) {
    std::string text;
    for (std::size_t i = 0; i < std::min(names.size(), most); ++i) text += (i == 0 ? "" : ", ") + schema::shortened(names[i]);
    if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
    return text;
}

// A name that occurs more than once; nullopt: there is none.
inline std::optional<std::string> repeated(std::vector<std::string> names) {
    std::ranges::sort(names);
    const auto place = std::ranges::adjacent_find(names);
    if (place == names.end()) return std::nullopt;
    return std::move(*place);
}

}  // namespace lorry::consumer
