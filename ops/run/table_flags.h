// The flags of `lorry run` for tables: declares and checks them, and makes the table of them. Called by run.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consumer/file/journal.h"
#include "consumer/file/table_rows.h"
#include "ops/adapter_folders.h"
#include "ops/run/input_format.h"
#include "ops/run/output_names.h"
#include "ops/settings.h"

namespace CLI {
class App;
}

namespace lorry::ops {

// All functions throw UsageError, or consumer::InputError where a template or the table's header is wrong. Call declare(), check() and
// make() in this order.
class TableFlags {
public:
    // This object must outlive the parsing.
    void declare(CLI::App& app);
    // Whether the flags make the input a table.
    bool is_table() const { return !(id_column_ + task_ + text_ + template_).empty(); }
    const FormatFlags& format() const { return format_; }
    // The files that flags name.
    std::vector<InputPath> files() const;
    // Finds contradictions that are there whatever the input and the model are.
    void check() const;

    struct MakeArgs {
        const Settings& settings;
        const engine::ModelConfig& config;
        const AdapterFolders& adapters;
        consumer::FileFormat format;
        std::string header;                               // of a CSV table
        std::optional<std::vector<std::string>> columns;  // of a Parquet table
        consumer::OutputRow output = consumer::OutputRow::as_input;
        std::optional<char> output_delimiter;  // of CSV; nullopt: the input's
        bool spreads_objects = false;          // the output's rows have columns, not objects
    };
    struct Made {
        consumer::Table table;
        consumer::ModelName model;       // of the rows
        consumer::RunIdentity identity;  // what a resumed run must share
        std::string note;                // a line for the user: the task that the model or the adapter chose; may be empty
    };
    // Finds what the rows ask, and that the model can do it.
    Made make(const MakeArgs& args) const;

private:
    // A flag that only some tasks take, and whether it was given.
    struct TaskFlag {
        std::string_view name;
        bool given;
    };
    std::vector<TaskFlag> task_flags() const;
    void check_adapter(const AdapterFolders& adapters) const;
    consumer::RowTask task_of(const engine::ModelConfig& config) const;
    void check_flags_of(const consumer::RowTaskRow& task) const;
    consumer::ModelName model_of(const AdapterFolders& adapters) const;
    std::optional<std::string> error_of_task(consumer::RowTask task, const consumer::Table& table, const MakeArgs& args) const;
    std::vector<std::string> read_choices() const;
    schema::Json::Object fields(std::optional<schema::Json> answer_schema) const;
    std::optional<schema::Json> read_schema(bool spreads) const;
    consumer::TableOptions options_of(const MakeArgs& args, consumer::RowTask task) const;
    consumer::RunIdentity identity_of(const consumer::TableOptions& options) const;

    std::string id_column_;
    std::string task_;
    std::string text_;
    std::string second_;
    std::string template_;
    std::string choices_;
    std::string hypothesis_template_;
    bool multi_label_ = false;
    std::optional<std::int64_t> dimensions_;
    std::string prompt_name_;
    bool truncates_ = false;
    std::optional<std::int64_t> stride_;
    std::string aggregation_;
    std::string system_;
    std::string adapter_ = "base";
    std::string adapter_column_;
    std::string endpoint_;
    std::string result_prefix_;
    std::string schema_;
    std::optional<std::int64_t> max_tokens_;
    double temperature_ = 0.0;
    FormatFlags format_;
};

}  // namespace lorry::ops
