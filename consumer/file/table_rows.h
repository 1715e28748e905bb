// Runs a prompt over each row of a table: a CSV file or JSONL objects, and a prompt template with {{ column }} placeholders. Rows become
// job lines (source.cpp), completions become rows with the results beside the input's columns (sink.cpp). Set up by `lorry run --template`.
// Constant after construction; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consumer/file/error.h"
#include "consumer/seams.h"

namespace lorry::consumer {

// Text with {{ column }} placeholders. "{{{{" stands for a literal "{{".
class RowTemplate {
public:
    // Throws InputError if the text is not UTF-8, and naming the line of an unclosed or empty placeholder.
    explicit RowTemplate(std::string_view text);
    // The columns that it names, each once, in the order of their first places.
    const std::vector<std::string>& columns() const { return columns_; }

    // Fills in fields from `field_of(column)`, which returns nullptr if the row lacks the column. The error names the column.
    template <typename FieldOf>
    Expected<std::string, std::string> fill(const FieldOf& field_of) const {
        std::vector<const std::string*> fields;  // [columns]
        for (const std::string& column : columns_) {
            fields.push_back(field_of(column));
            if (fields.back() == nullptr) return unexpected("the row has no column '" + column + "', which the template asks for");
        }
        std::string text;
        for (const Piece& piece : pieces_) {
            text += piece.text;
            if (piece.column) text += *fields[*piece.column];
        }
        return text;
    }

private:
    struct Piece {
        std::string text;
        std::optional<std::size_t> column;  // the column that follows the text, an index of columns_
    };
    std::vector<Piece> pieces_;
    std::vector<std::string> columns_;
};

struct TableOptions {
    bool csv = false;  // otherwise JSONL objects
    std::string id_column;
    std::string prompt_template;
    std::string system;                // empty: none; for chats only
    std::vector<std::string> choices;  // if not empty, rows are classified
    bool chat = true;                  // the prompt is a user's message, otherwise plain text
    std::string model = "base";
    std::optional<std::string> model_column;  // column with each row's model; empty fields mean `model`
    std::optional<std::int64_t> max_tokens;
    double temperature = 0.0;
    std::string result_prefix;  // prefix of the added columns' names
};

// The header in which a delivered record carries its row to the sink.
inline constexpr std::string_view row_header = "lorry_row";

class Table {
public:
    // `header` is the first record of a CSV file, empty for JSONL. Throws InputError when a column is missing or duplicated, a result
    // column already exists in the table, or the header is not UTF-8.
    Table(TableOptions options, std::string_view header);

    // Fills in value, headers and, if the row is bad, `refusal` of a delivery whose source is set. Returns a column that the template uses
    // and that is empty in this row, if the row is not refused: the prompt is usable, but hardly what was meant.
    std::optional<std::string> read_row(std::string row, Delivery& delivery) const;
    // The output's first line, with line end; empty for JSONL.
    std::string output_header() const;
    // The row with its result, with line end.
    std::string output_row(std::string_view row, const schema::Completion& completion) const;
    std::string output_row(std::string_view row, const schema::DeadLetter& letter) const;
    const std::string& id_column() const { return options_.id_column; }

private:
    struct Row;
    struct Answer;
    Expected<Row, std::string> parse(std::string_view row) const;
    // The first of added_ that a JSON row has as a member of its own; nullptr: none.
    const std::string* name_taken_in(const schema::Json& row) const;
    schema::Json body_of(const Row& row, std::string prompt) const;
    std::string encode(std::string_view row, const Answer& answer) const;

    TableOptions options_;
    const schema::EndpointRow endpoint_;
    RowTemplate template_;
    std::vector<std::string> header_;  // CSV
    std::vector<std::string> added_;   // names of the result columns
};

}  // namespace lorry::consumer
