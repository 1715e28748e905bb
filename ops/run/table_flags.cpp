// Declares the flags for tables, and turns them into a table.
#include "ops/run/table_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "consumer/file/listed.h"
#include "consumer/file/table_csv.h"
#include "engine/files.h"
#include "ops/command.h"
#include "ops/flag_checks.h"
#include "schema/codec_error.h"

namespace lorry::ops {
namespace {

using consumer::RecordFormat;
using consumer::RowTask;
using consumer::RowTaskRow;

std::string read_file(const std::string& flag, const std::string& file) {
    auto text = engine::read_text(file, {.kinds = engine::InputFile::Kinds::all});
    if (!text) throw UsageError(fmt::format("{}: {}", flag, text.error()));
    if (!schema::is_valid_utf8(*text)) throw UsageError(fmt::format("{} {}: the file is not UTF-8", flag, file));
    if (text->starts_with(schema::byte_order_mark)) text->erase(0, schema::byte_order_mark.size());
    return std::move(*text);
}

std::string without_last_newline(std::string text) {
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    return text;
}

std::string read_text_of(const std::string& flag, const std::string& file) {
    return file.empty() ? std::string() : without_last_newline(read_file(flag, file));
}

std::string hash_of(const std::string& text) {
    engine::ContentHash hash;
    hash.add_text(text);
    return hash.hex();
}

std::optional<std::string> given(const std::string& text) { return text.empty() ? std::nullopt : std::optional(text); }

std::vector<std::string> task_names() {
    std::vector<std::string> names;
    for (const RowTaskRow& row : consumer::row_tasks()) {
        if (!row.name.empty()) names.emplace_back(row.name);
    }
    return names;
}

bool takes(const RowTaskRow& task, std::string_view flag) { return std::ranges::find(task.flags, flag) != task.flags.end(); }

// The tasks that take a flag, for messages.
std::string owners_of(std::string_view flag) {
    std::vector<std::string> owners;
    for (const RowTaskRow& row : consumer::row_tasks()) {
        if (!takes(row, flag)) continue;
        owners.push_back(row.name.empty() ? "models that generate text" : fmt::format("--task {}", row.name));
    }
    owners.erase(std::ranges::unique(owners).begin(), owners.end());
    return fmt::format("{}", fmt::join(owners, " or "));
}

}  // namespace

void TableFlags::declare(CLI::App& app) {
    const std::string table = "Tables";
    const auto text = [&](const std::string& name, std::string& value, const std::string& what, const char* type) {
        return app.add_option(name, value, what)->type_name(type)->group(table)->check(not_empty());
    };
    text("--task", task_, "what to do with each row: classify, zero-shot, embed, ner or score (default: what the model can do)", "TASK")
        ->check(CLI::IsMember(task_names()));
    text("--text", text_, "the column with the texts; or give --template", "COLUMN");
    text("--text-2", second_, "--task score: the column with the texts to compare with", "COLUMN");
    text("--id", id_column_, "the column that names the rows (default: the numbers of their lines)", "COLUMN");
    text("--template", template_, "file with the prompt; {{ column }} is replaced by a row's field", "FILE");
    text("--choices", choices_, "labels: a file with one per line, or the labels separated by commas. Each row gets the most probable one",
         "LABELS");
    text("--hypothesis-template", hypothesis_template_, "--task zero-shot: the sentence in which {} stands for a label", "TEXT");
    app.add_flag("--multi-label", multi_label_, "--task zero-shot: decide each label by itself")->group(table);
    app.add_option("--dimensions", dimensions_, "--task embed: keep so many of a vector's first values")
        ->type_name("N")
        ->group(table)
        ->check(whole_number_from(1));
    text("--prompt-name", prompt_name_, "--task embed: the model's own prompt that goes before each text, such as query", "NAME");
    app.add_flag("--truncate", truncates_, "with --task: cut texts that are too long for the model, instead of refusing them")
        ->group(table);
    app.add_option("--stride", stride_,
                   "--task classify, embed or ner: split texts that are too long into windows; neighbouring windows share N tokens")
        ->type_name("N")
        ->group(table)
        ->check(whole_number_from(0));
    text("--aggregation", aggregation_, "--task ner: how the classes of tokens become entities: simple (the default), first, average, max",
         "STRATEGY")
        ->check(CLI::IsMember({"simple", "first", "average", "max"}));
    text("--system", system_, "file with the system message", "FILE");
    text("--adapter", adapter_, "the adapter for all rows", "NAME")->default_str("base");
    text("--adapter-column", adapter_column_, "column that names each row's adapter", "COLUMN");
    app.add_option("--max-tokens", max_tokens_, "the most tokens drawn per row")->type_name("N")->group(table)->check(whole_number_from(1));
    app.add_option("--temperature", temperature_, "0 draws the most probable token")
        ->type_name("T")
        ->group(table)
        ->check(CLI::Range(0.0, 2.0))
        ->default_str("0");
    text("--schema", schema_,
         "file with a JSON schema that each answer matches: a column for each of its properties, in JSON lines one object", "FILE");
    app.add_option("--endpoint", endpoint_, "chat (default where the model has a chat template) or completions")
        ->group(table)
        ->check(CLI::IsMember({"chat", "completions"}));
    app.add_option("--format", format_.format,
                   "of IN: csv, tsv, jsonl or parquet (default: by its ending, before .gz or .zst); OUT has that of its own ending")
        ->group(table)
        ->check(CLI::IsMember({"csv", "tsv", "jsonl", "parquet"}));
    app.add_option("--delimiter", format_.delimiter, "between the columns of CSV: , ; | or tab (default: found in the header)")
        ->group(table)
        ->check(CLI::IsMember({",", ";", "|", "tab"}));
    app.add_option("--encoding", format_.encoding, "of IN: utf-8 (default), windows-1252 or latin-1; OUT is UTF-8")
        ->group(table)
        ->check(CLI::IsMember({"utf-8", "windows-1252", "latin-1"}));
    app.add_option("--result-prefix", result_prefix_, "prefix of the names of the added columns")->type_name("TEXT")->group(table);
}

std::vector<TableFlags::TaskFlag> TableFlags::task_flags() const {
    return {{"--system", !system_.empty()},
            {"--endpoint", !endpoint_.empty()},
            {"--choices", !choices_.empty()},
            {"--max-tokens", max_tokens_.has_value()},
            {"--temperature", temperature_ > 0.0},
            {"--schema", !schema_.empty()},
            {"--text-2", !second_.empty()},
            {"--multi-label", multi_label_},
            {"--hypothesis-template", !hypothesis_template_.empty()},
            {"--dimensions", dimensions_.has_value()},
            {"--prompt-name", !prompt_name_.empty()},
            {"--aggregation", !aggregation_.empty()},
            {"--truncate", truncates_},
            {"--stride", stride_.has_value()}};
}

std::vector<InputPath> TableFlags::files() const {
    std::vector<InputPath> files;
    for (const auto& [flag, file] : {std::pair("--template", template_), std::pair("--system", system_), std::pair("--choices", choices_),
                                     std::pair("--schema", schema_)}) {
        if (!file.empty() && std::filesystem::exists(file)) files.push_back({.what = fmt::format("{} {}", flag, file), .path = file});
    }
    return files;
}

void TableFlags::check() const {
    if (!is_table()) {
        const bool has_task_flags = std::ranges::any_of(task_flags(), &TaskFlag::given);
        const bool has_others = !(adapter_column_ + result_prefix_ + format_.format + format_.delimiter + format_.encoding).empty();
        if (adapter_ != "base" || max_tokens_ || temperature_ > 0.0) {
            throw UsageError(
                "--adapter, --max-tokens and --temperature are for tables, whose texts --text or --template names: in a file of jobs, "
                "each job names its own");
        }
        if (has_task_flags || has_others) throw UsageError("the flags for tables need --text COLUMN or --template FILE");
        return;
    }
    if (!text_.empty() && !template_.empty()) throw UsageError("--text and --template both say what the model reads: give one of them");
    if (text_.empty() && template_.empty()) {
        throw UsageError(
            fmt::format("{} makes the input a table, whose texts are missing: name their column with --text COLUMN, or give "
                        "a prompt with --template FILE",
                        task_.empty() ? "--id" : "--task"));
    }
    if (!choices_.empty() && (max_tokens_ || temperature_ > 0.0)) {
        throw UsageError("--choices takes the most probable label and draws no tokens: leave --max-tokens and --temperature out");
    }
    if (!choices_.empty() && !schema_.empty()) throw UsageError("--schema and --choices exclude each other: give one of them");
    if (truncates_ && stride_) throw UsageError("--truncate cuts texts that are too long, --stride reads them whole: give one of them");
    for (const RowTaskRow& row : consumer::row_tasks()) {
        if (!task_.empty() && row.name == task_) check_flags_of(row);
    }
}

void TableFlags::check_flags_of(const RowTaskRow& task) const {
    for (const TaskFlag& flag : task_flags()) {
        if (!flag.given || takes(task, flag.name)) continue;
        throw UsageError(fmt::format("{} does not belong to {}, only to {}", flag.name,
                                     task.name.empty() ? "a model that generates text" : fmt::format("--task {}", task.name),
                                     owners_of(flag.name)));
    }
    if (task.task == RowTask::ner && !template_.empty()) {
        throw UsageError(
            "--template does not belong to --task ner: the places of entities count the characters of a column, not those of a prompt; "
            "name the column with --text COLUMN");
    }
    if (task.task == RowTask::score && second_.empty()) {
        throw UsageError("--task score compares two texts: name the column of the second with --text-2 COLUMN");
    }
    if (task.task == RowTask::zero_shot && choices_.empty()) {
        throw UsageError("--task zero-shot compares each text with labels: give them with --choices LABELS");
    }
}

// An adapter for all rows must exist and be usable before anything is written.
void TableFlags::check_adapter(const AdapterFolders& adapters) const {
    const consumer::ModelName model = adapters.resolve(adapter_, consumer::Clock::now());
    if (model.kind == consumer::ModelName::Kind::refused) throw UsageError(fmt::format("--adapter {}: {}", adapter_, model.refusal));
    if (model.kind != consumer::ModelName::Kind::unknown) return;
    const std::vector<std::string> names = adapters.names();
    throw UsageError(fmt::format("--adapter {}: there is no adapter of that name{}", adapter_,
                                 names.empty() ? ": give the folder whose sub-folders are the adapters with --adapters DIR"
                                               : fmt::format(" in --adapters, which has: {}", fmt::join(names, ", "))));
}

RowTask TableFlags::task_of(const engine::ModelConfig& config) const {
    for (const RowTaskRow& row : consumer::row_tasks()) {
        if (!task_.empty() && row.name == task_) return row.task;
    }
    if (config.generates) return choices_.empty() ? RowTask::answer : RowTask::choose;
    const auto task = consumer::task_by_model(config, !choices_.empty(), !second_.empty());
    if (task) return *task;
    throw UsageError(fmt::format("say what to do with the rows: --task {}; this model {}", fmt::join(task_names(), ", "),
                                 consumer::abilities_of(config)));
}

std::vector<std::string> TableFlags::read_choices() const {
    std::vector<std::string> labels;
    if (choices_.empty()) return labels;
    const bool is_list = choices_.find(',') != std::string::npos && !std::filesystem::exists(choices_);
    std::istringstream in(is_list ? choices_ : read_file("--choices", choices_));
    for (std::string label; std::getline(in, label, is_list ? ',' : '\n');) {
        if (is_list) label = consumer::trimmed(label);
        if (label.ends_with('\r')) label.pop_back();
        if (!label.empty()) labels.push_back(label);
    }
    if (labels.size() < 2)
        throw UsageError(fmt::format("--choices {}: give at least two labels, one per line or separated by commas", choices_));
    if (const auto choice = consumer::repeated(labels))
        throw UsageError(fmt::format("--choices {}: the label '{}' occurs twice: take one out", choices_, schema::shortened(*choice)));
    return labels;
}

// Where an answer's members become columns, it has no others than those of the schema, unless the schema says so.
std::optional<schema::Json> TableFlags::read_schema(bool spreads) const {
    if (schema_.empty()) return std::nullopt;
    auto read = schema::Json::parse(read_file("--schema", schema_));
    if (!read) throw UsageError(fmt::format("--schema {}: the file is not JSON: {}", schema_, read.error()));
    if (!read->is_object()) throw UsageError(fmt::format("--schema {}: a schema is a JSON object, not {}", schema_, read->kind()));
    const schema::Json* type = read->find("type");
    if (type == nullptr || !type->is_string() || *type->as_string() != "object") {
        throw UsageError(fmt::format(
            "--schema {}: the schema must say that an answer is an object: give it the member \"type\": \"object\"{}", schema_,
            read->find("schema") != nullptr || read->find("json_schema") != nullptr ? "; this file has a schema inside, give only that"
                                                                                    : ""));
    }
    if (spreads && read->find("additionalProperties") == nullptr) read->set("additionalProperties", false);
    return std::move(*read);
}

// Of each job's body, those that flags set.
schema::Json::Object TableFlags::fields(std::optional<schema::Json> answer_schema) const {
    schema::Json::Object fields;
    if (dimensions_) fields.emplace_back("dimensions", *dimensions_);
    if (!prompt_name_.empty()) fields.emplace_back("prompt_name", prompt_name_);
    if (!hypothesis_template_.empty()) fields.emplace_back("hypothesis_template", hypothesis_template_);
    if (multi_label_) fields.emplace_back("multi_label", true);
    if (!aggregation_.empty()) fields.emplace_back("aggregation_strategy", aggregation_);
    if (stride_) fields.emplace_back("stride", *stride_);
    if (truncates_) fields.emplace_back("truncate_prompt_tokens", -1);
    if (answer_schema) {
        using schema::Json;
        Json named = Json::object({{"name", "row"}, {"schema", std::move(*answer_schema)}});
        fields.emplace_back("response_format", Json::object({{"type", "json_schema"}, {"json_schema", std::move(named)}}));
    }
    return fields;
}

consumer::TableOptions TableFlags::options_of(const MakeArgs& args, RowTask task) const {
    const bool converses = consumer::row_of(task).chat_endpoint.has_value();
    const bool chat = converses && (endpoint_.empty() ? args.adapters.converses(adapter_) : endpoint_ == "chat");
    const auto answer_schema = read_schema(args.spreads_objects);
    consumer::TableOptions options{.task = task,
                                   .csv = args.format.records == RecordFormat::csv,
                                   .delimiter = args.format.delimiter,
                                   .output_delimiter = args.output_delimiter,
                                   .columns = args.columns,
                                   .output = args.output,
                                   .id_column = id_column_,
                                   .prompt_template = read_text_of("--template", template_),
                                   .text_column = given(text_),
                                   .second_column = given(second_),
                                   .system = read_text_of("--system", system_),
                                   .choices = read_choices(),
                                   .chat = chat,
                                   .model = adapter_,
                                   .model_column = given(adapter_column_),
                                   .max_tokens = max_tokens_,
                                   .temperature = temperature_,
                                   .answer_schema = answer_schema,
                                   .spreads_objects = args.spreads_objects,
                                   .fields = fields(answer_schema),
                                   .result_prefix = result_prefix_};
    if (!options.system.empty() && !chat) throw UsageError("--system needs --endpoint chat: plain prompts have no roles");
    return options;
}

consumer::RunIdentity TableFlags::identity_of(const consumer::TableOptions& options) const {
    std::string choices;
    for (const std::string& choice : options.choices) choices += choice + "\n";
    const auto shown = [](const std::string& text) { return text.empty() ? "none" : text; };
    const RowTaskRow& task = consumer::row_of(options.task);
    consumer::RunIdentity identity = {{"id column", id_column_},
                                      {"template", hash_of(options.prompt_template), shown(options.prompt_template)},
                                      {"system message", hash_of(options.system), shown(options.system)},
                                      {"choices", hash_of(choices), shown(fmt::format("{}", fmt::join(options.choices, ", ")))},
                                      {"endpoint", options.chat ? "chat" : "completions"},
                                      {"adapter", adapter_},
                                      {"adapter column", adapter_column_},
                                      {"max tokens", max_tokens_ ? std::to_string(*max_tokens_) : "by default"},
                                      {"temperature", fmt::format("{}", temperature_)},
                                      {"format", options.csv       ? "csv"
                                                 : options.columns ? "parquet"
                                                                   : "jsonl"},
                                      {"result prefix", result_prefix_}};
    // Omitted unless given, so that runs that began before these flags existed can be resumed.
    const auto add = [&](const std::string& name, const std::string& value) {
        if (!value.empty()) identity.push_back({name, value});
    };
    add("task", std::string(task.name));
    add("text", text_);
    add("text 2", second_);
    add("encoding", format_.encoding == "utf-8" ? "" : format_.encoding);
    if (options.csv && options.delimiter != ',') add("delimiter", std::string(consumer::row_of_delimiter(options.delimiter).word));
    const auto flag_of = [](const std::string& field) {
        return field == "response_format"          ? "schema"
               : field == "truncate_prompt_tokens" ? "truncate"
               : field == "aggregation_strategy"   ? "aggregation"
                                                   : field;
    };
    for (const auto& [field, value] : options.fields) add(flag_of(field), value.dump());
    return identity;
}

// Where a column names adapters, some rows may name one that can do what others cannot.
consumer::ModelName TableFlags::model_of(const AdapterFolders& adapters) const {
    consumer::ModelName model = adapters.resolve(adapter_, consumer::Clock::now());
    if (!adapter_column_.empty()) model.kind = consumer::ModelName::Kind::adapter;
    return model;
}

// What cannot be done with any row.
std::optional<std::string> TableFlags::error_of_task(RowTask task, const consumer::Table& table, const MakeArgs& args) const {
    using Kind = consumer::ModelName::Kind;
    const consumer::ModelName model = model_of(args.adapters);
    if (auto error = table.error_of_model(model, args.config)) {
        const bool needs_head = task == RowTask::classify || task == RowTask::zero_shot || task == RowTask::ner;
        const bool adapters_may_have_one = needs_head && model.kind == Kind::base && !args.settings.adapters.empty();
        return adapters_may_have_one ? *error + "; or name an adapter with a head for it with --adapter NAME" : *error;
    }
    const engine::ModelConfig own = args.adapters.config_with(adapter_);
    const bool head_decides = adapter_column_.empty() && own.labels != args.config.labels;
    return head_decides ? table.error_of_model({.kind = Kind::base, .hash = {}, .folder = {}}, own) : std::nullopt;
}

TableFlags::Made TableFlags::make(const MakeArgs& args) const {
    check_adapter(args.adapters);
    if (!adapter_column_.empty() && args.settings.adapters.empty()) {
        throw UsageError("--adapter-column names adapters: give the folder that holds them with --adapters DIR");
    }
    const engine::ModelConfig config = args.adapters.config_with(adapter_);
    const RowTaskRow& task = consumer::row_of(task_of(config));
    check_flags_of(task);
    consumer::TableOptions options = options_of(args, task.task);
    consumer::RunIdentity identity = identity_of(options);
    consumer::Table table(std::move(options), args.header);
    if (const auto error = error_of_task(task.task, table, args)) {
        const std::string adapter = adapter_ == "base" ? "" : ", --adapter " + adapter_;
        throw UsageError(task.name.empty() ? *error : fmt::format("--task {}{}: {}", task.name, adapter, *error));
    }
    const bool is_chosen = task_.empty() && !task.name.empty();
    return {.table = std::move(table),
            .model = model_of(args.adapters),
            .identity = std::move(identity),
            .note = is_chosen ? fmt::format("the {} {}: --task {}\n", config.labels == args.config.labels ? "model" : "adapter",
                                            consumer::abilities_of(config), task.name)
                              : std::string()};
}

}  // namespace lorry::ops
