// Lists names in a sentence, shortened to the first few. Used in messages of table_rows.cpp and `lorry check-model`.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace lorry::consumer {

// "a, b and 3 more", with at most `most` names.
inline std::string listed(const std::vector<std::string>& names, std::size_t most) {
    std::string text;
    for (std::size_t i = 0; i < std::min(names.size(), most); ++i) text += (i == 0 ? "" : ", ") + names[i];
    if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
    return text;
}

}  // namespace lorry::consumer
