// Tables for people who have rows rather than jobs: a CSV file or JSONL objects, a prompt template with {{ column }} placeholders, and the
// results beside the input's columns. Rows become job lines (source.cpp), completions become rows (sink.cpp). Set up by
// `lorry run --template`. Constant after construction; any thread.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consumer/seams.h"

namespace lorry::consumer {

// Something about the table or its template that no row can cure; the message says what to change.
struct TableError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Text with {{ column }} placeholders. "{{{{" stands for "{{".
class RowTemplate {
public:
    // Throws TableError with the line of an unclosed or empty placeholder.
    explicit RowTemplate(std::string_view text);
    std::vector<std::string> columns() const;

    // Fields come from `field_of(column)`; nullptr: the row lacks it. The error names the column.
    template <typename FieldOf>
    Expected<std::string, std::string> fill(const FieldOf& field_of) const {
        std::string text;
        for (const Piece& piece : pieces_) {
            text += piece.text;
            if (!piece.column) continue;
            const std::string* field = field_of(*piece.column);
            if (field == nullptr) return unexpected("the row has no column '" + *piece.column + "', which the template asks for");
            text += *field;
        }
        return text;
    }

private:
    struct Piece {
        std::string text;
        std::optional<std::string> column;  // after the text
    };
    std::vector<Piece> pieces_;
};

struct TableOptions {
    bool csv = false;  // else JSONL objects
    std::string id_column;
    std::string prompt_template;
    std::string system;                // empty: none; chats only
    std::vector<std::string> choices;  // not empty: classify
    bool chat = true;                  // the prompt is a user's message, else plain text
    std::string model = "base";
    std::optional<std::string> model_column;  // then each row names its model; empty fields mean `model`
    std::optional<std::int64_t> max_tokens;
    double temperature = 0.0;
    std::string result_prefix;  // of the names of the added columns
};

// The header of a delivered record that carries its row to the sink.
inline constexpr std::string_view row_header = "lorry_row";

class Table {
public:
    // header: the first record of a CSV file, empty for JSONL. Throws TableError: a column that is not there or there twice, a result
    // column that the table already has, a header that is not UTF-8.
    Table(TableOptions options, std::string_view header);

    // Fills in value, headers and perhaps `refusal` of a delivery whose source is set, from a row's text. Returns a column that the
    // template uses and that is empty in this row, if it is not refused: a prompt all the same, but hardly the one that was meant.
    std::optional<std::string> read_row(std::string row, Delivery& delivery) const;
    // The output's first line, with line end; empty for JSONL.
    std::string output_header() const;
    // A row with its result, with line end.
    std::string output_row(std::string_view row, const schema::Completion& completion) const;
    std::string output_row(std::string_view row, const schema::DeadLetter& letter) const;
    const std::string& id_column() const { return options_.id_column; }

private:
    struct Row;
    struct Answer;
    Expected<Row, std::string> parse(std::string_view row) const;
    schema::Json body_of(const Row& row, std::string prompt) const;
    std::string encode(std::string_view row, const Answer& answer) const;

    TableOptions options_;
    const schema::EndpointRow endpoint_;
    RowTemplate template_;
    std::vector<std::string> header_;  // CSV
    std::vector<std::string> added_;   // names of the result's columns
};

}  // namespace lorry::consumer
