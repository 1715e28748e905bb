// Splits a template at its placeholders.
#include "consumer/file/row_template.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "consumer/file/error.h"
#include "schema/json.h"

namespace lorry::consumer {

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

RowTemplate::RowTemplate(std::string_view text) {
    if (!schema::is_valid_utf8(text)) throw InputError("the template is not UTF-8: save it in that encoding");
    Piece piece;
    std::map<std::string_view, std::size_t> known;  // column → index of columns_
    std::int64_t line = 1;                          // of text[counted]
    std::size_t counted = 0;
    std::size_t at = 0;
    while (at < text.size()) {
        const std::size_t open = text.find("{{", at);
        piece.text += text.substr(at, open == std::string_view::npos ? open : open - at);
        if (open == std::string_view::npos) break;
        if (text.substr(open).starts_with("{{{{")) {
            piece.text += "{{";
            at = open + 4;
            continue;
        }
        const std::size_t close = text.find("}}", open);
        line += std::ranges::count(text.substr(counted, open - counted), '\n');
        counted = open;
        if (close == std::string_view::npos) {
            throw InputError(fmt::format("the template opens a placeholder in line {} and never closes it: write {{{{ column }}}}", line));
        }
        const std::string_view column = trimmed(text.substr(open + 2, close - open - 2));
        if (column.empty()) throw InputError(fmt::format("the template has an empty placeholder in line {}: name a column", line));
        const auto [place, is_new] = known.try_emplace(column, columns_.size());
        if (is_new) columns_.emplace_back(column);
        piece.column = place->second;
        pieces_.push_back(std::move(piece));
        piece = {};
        at = close + 2;
    }
    pieces_.push_back(std::move(piece));
}

RowTemplate RowTemplate::of_column(std::string column) {
    RowTemplate one;
    one.pieces_.push_back({.text = {}, .column = 0});
    one.columns_.push_back(std::move(column));
    one.asks_ = "--text names";
    return one;
}

}  // namespace lorry::consumer
