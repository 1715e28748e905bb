// Runs a task (table_task.h) over each row of a table: CSV, JSONL objects or Parquet, and a prompt template with {{ column }} placeholders.
// Rows become job lines (source.cpp), completions become rows with the results beside the input's columns (sink.cpp). Made by `lorry run`.
// Constant after construction; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consumer/file/error.h"
#include "consumer/file/row_template.h"
#include "consumer/file/table_task.h"
#include "consumer/preparer.h"
#include "consumer/seams.h"

namespace lorry::consumer {

// What a row of the output is.
enum class OutputRow : std::uint8_t {
    as_input,  // the input's row with its results, in its format
    object,    // the same as a JSON object
    results,   // a JSON object of the results alone
};

struct TableOptions {
    RowTask task = RowTask::answer;
    bool csv = false;  // otherwise JSON objects
    char delimiter = ',';
    std::optional<char> output_delimiter;             // nullopt: the same
    std::optional<std::vector<std::string>> columns;  // of a Parquet file; of CSV, the header names them
    OutputRow output = OutputRow::as_input;
    std::string id_column;  // empty: a row is identified by the number of its line
    std::string prompt_template;
    std::optional<std::string> text_column;    // the prompt is its field, in place of prompt_template
    std::optional<std::string> second_column;  // score: the text to compare the prompt with
    std::string system;                        // empty: none; for chats only
    std::vector<std::string> choices;          // choose and zero_shot
    bool chat = true;                          // answer and choose: the prompt is a user's message, otherwise plain text
    std::string model = "base";
    std::optional<std::string> model_column;    // column with each row's model; empty fields mean `model`
    std::optional<std::int64_t> max_tokens;     // answer
    double temperature = 0.0;                   // answer
    std::optional<schema::Json> answer_schema;  // answer: each answer is an object that matches it
    bool spreads_objects = false;               // such an answer becomes a column for each property of the schema, otherwise one object
    schema::Json::Object fields;                // more fields of each job's body
    std::string result_prefix;                  // prefix of the added columns' names
};

// The header in which a delivered record carries its row to the sink.
inline constexpr std::string_view row_header = "lorry_row";

class Table {
public:
    // `header` is the first record of a CSV file, otherwise empty. Throws InputError when a column is missing or duplicated, a result
    // column already exists in the table, or the header is not UTF-8.
    Table(TableOptions options, std::string_view header);

    // Fills in value, headers and, if the row is bad, `refusal` of a delivery whose source is set. Returns a column that the prompt uses
    // and that is empty in this row, if the row is not refused: the prompt is usable, but hardly what was meant.
    std::optional<std::string> read_row(std::string row, Delivery& delivery) const;
    // Why the model cannot do what the rows ask; nullopt: it can. Every row asks the same, so this is found out before any runs.
    std::optional<std::string> error_of_model(const ModelName& model, const engine::ModelConfig& config) const;
    // Why flags and the limits of the loaded model refuse every row, whatever its text is; nullopt: they do not. model: resolved.
    std::optional<std::string> error_of_limits(const ModelName& model, const Preparer& preparer) const;
    // The columns of the input that rows need; those that the table lacks are refused before.
    std::vector<std::string> columns_needed() const;
    // The input's columns, as far as they are known before its rows are.
    const std::vector<std::string>& columns() const { return header_; }
    // The columns with the results, and their types.
    std::vector<engine::ParquetColumn> added_columns() const;
    // The output's first line, with line end; empty for JSON.
    std::string output_header() const;
    // The row with its result, with line end.
    std::string output_row(std::string_view row, const schema::Completion& completion) const;
    std::string output_row(std::string_view row, const schema::DeadLetter& letter) const;
    // What identifies rows, for messages.
    const std::string& id_column() const { return options_.id_column; }

private:
    struct Row;
    struct Answer;
    // A result's column as this table has it.
    struct Column {
        std::string name;
        engine::ParquetKind kind = engine::ParquetKind::text;
        bool rounded = false;
    };
    std::vector<Column> columns_of_results() const;
    Answer answer_of(const schema::Json& entry) const;
    void check_columns() const;
    Expected<Row, std::string> parse(std::string_view row) const;
    // What any row asks, with a text of its own.
    Expected<schema::Job, schema::BadRecord> sample_job() const;
    // The first of added_ that a JSON row has as a member of its own; nullptr: none.
    const std::string* name_taken_in(const schema::Json& row) const;
    // Adds the job that the row asks for to a line that has its id.
    std::optional<schema::JobError> add_job(const Row& row, std::int64_t line_number, schema::Json& line) const;
    schema::Json body_of(const Row& row, std::string prompt) const;
    std::string encode(std::string_view row, const Answer& answer) const;
    std::string encode_csv(std::string_view row, const Answer& answer) const;
    std::vector<std::string> fields_of(std::string_view row) const;
    schema::Json input_of(std::string_view row) const;

    TableOptions options_;
    const RowTaskRow& task_;
    const schema::EndpointRow endpoint_;
    RowTemplate template_;
    std::vector<std::string> header_;  // CSV and Parquet
    std::vector<Column> results_;      // in their order
    std::vector<std::string> added_;   // names of the result columns, and of the one with the error
};

}  // namespace lorry::consumer
