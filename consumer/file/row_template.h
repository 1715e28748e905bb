// A prompt with placeholders for a row's fields. Used by table_rows.h. Constant after construction; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schema/check.h"

namespace lorry::consumer {

// The text without spaces and tabs around it.
std::string_view trimmed(std::string_view text);

// Text with {{ column }} placeholders. "{{{{" stands for a literal "{{".
class RowTemplate {
public:
    // Throws InputError if the text is not UTF-8, and naming the line of an unclosed or empty placeholder.
    explicit RowTemplate(std::string_view text);
    // The column's field alone, as --text asks for it.
    static RowTemplate of_column(std::string column);
    // The columns that it names, each once, in the order of their first places.
    const std::vector<std::string>& columns() const { return columns_; }
    // Who names the columns, with a verb, for messages: "the template asks for".
    const std::string& asks() const { return asks_; }

    // Fills in fields from `field_of(column)`, which returns nullptr if the row lacks the column. The error names the column.
    template <typename FieldOf>
    Expected<std::string, std::string> fill(const FieldOf& field_of) const {
        std::vector<const std::string*> fields;  // [columns]
        for (const std::string& column : columns_) {
            fields.push_back(field_of(column));
            if (fields.back() == nullptr) return unexpected("the row has no column '" + column + "', which " + asks_);
        }
        std::string text;
        for (const Piece& piece : pieces_) {
            text += piece.text;
            if (piece.column) text += *fields[*piece.column];
        }
        return text;
    }

private:
    RowTemplate() = default;

    struct Piece {
        std::string text;
        std::optional<std::size_t> column;  // the column that follows the text, an index of columns_
    };
    std::vector<Piece> pieces_;
    std::vector<std::string> columns_;
    std::string asks_ = "the template asks for";
};

}  // namespace lorry::consumer
