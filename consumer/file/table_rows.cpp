// Parses the rows, makes their jobs, and writes rows with their results.
#include "consumer/file/table_rows.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <span>

#include <fmt/format.h>

#include "consumer/file/answer_columns.h"
#include "consumer/file/listed.h"
#include "consumer/file/table_csv.h"
#include "consumer/pooled_prompts.h"
#include "schema/codec_error.h"

namespace lorry::consumer {

using schema::Json;

struct Table::Row {
    explicit Row(std::vector<std::pair<std::string, std::string>> all) : fields(std::move(all)), by_name(fields.size()) {
        std::iota(by_name.begin(), by_name.end(), std::size_t{0});
        std::ranges::sort(by_name, {}, [&](std::size_t index) { return name_of(index); });
    }

    std::vector<std::pair<std::string, std::string>> fields;  // column → text
    std::vector<std::size_t> by_name;                         // indices of fields

    std::string_view name_of(std::size_t index) const { return fields[index].first; }
    const std::string* find(std::string_view column) const {
        const auto place = std::ranges::lower_bound(by_name, column, {}, [&](std::size_t index) { return name_of(index); });
        return place == by_name.end() || name_of(*place) != column ? nullptr : &fields[*place].second;
    }
    std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (const auto& [name, text] : fields) names.push_back(name);
        return names;
    }
};

struct Table::Answer {
    std::vector<Json> results;  // [results_]; empty: there are none
    std::string error;          // empty: none; there may be results beside it
};

namespace {

constexpr std::size_t names_shown = 20;  // limited, because each of a million rows may repeat it

// A guess why a header lacks a column.
std::string hint_at(const std::vector<std::string>& header, const std::string& missing) {
    for (const CsvDelimiter& delimiter : csv_delimiters()) {
        if (header.size() == 1 && header.front().find(delimiter.byte) != std::string::npos) {
            return fmt::format("; they seem to be separated by {}: give --delimiter '{}'", delimiter.plural, delimiter.word);
        }
    }
    const bool padded = std::ranges::any_of(header, [&](const std::string& name) { return name != missing && trimmed(name) == missing; });
    return padded ? "; that name has spaces around it in the header: remove them" : "";
}

schema::JobError bad_row(schema::ErrorCode code, std::string param, std::string message) {
    return {.code = code, .param = std::move(param), .message = std::move(message)};
}

std::string not_utf8(std::int64_t line) {
    return fmt::format("line {} is not UTF-8: save the table in that encoding, or name its own with --encoding (windows-1252, latin-1)",
                       line);
}

// How many lines a row that cannot be read takes with it, if it is more than its own.
std::string extent_of(std::string_view row) {
    const auto more = std::ranges::count(row, '\n');
    return more == 0 ? "" : fmt::format("; the row takes {} lines, so a quote may be missing", more + 1);
}

RowTemplate template_of(const TableOptions& options) {
    return options.text_column ? RowTemplate::of_column(*options.text_column) : RowTemplate(options.prompt_template);
}

// A JSON field as text, as the template inserts it.
std::string text_of(const Json& value) {
    if (const std::string* text = value.as_string()) return *text;
    return value.is_null() ? std::string() : value.dump();
}

// A result in a CSV field.
std::string cell_of(bool rounded, const Json& value) {
    return rounded ? fmt::format("{:.6f}", value.as_number().value_or(0.0)) : text_of(value);
}

}  // namespace

Table::Table(TableOptions options, std::string_view header)
    : options_(std::move(options)),
      task_(row_of(options_.task)),
      endpoint_(schema::row_of(options_.chat ? task_.chat_endpoint.value_or(task_.endpoint) : task_.endpoint)),
      template_(template_of(options_)) {
    results_ = columns_of_results();
    for (const Column& column : results_) added_.push_back(options_.result_prefix + column.name);
    added_.push_back(options_.result_prefix + "error");
    if (const auto name = repeated(added_)) {
        throw InputError(fmt::format("the schema has a property '{}', but Lorry adds a column with that name: rename the property",
                                     schema::shortened(*name)));
    }
    if (template_.columns().empty()) {
        throw InputError("the template uses no column, so every row would ask the same: write {{ column }} where a row's text belongs");
    }
    if (options_.columns) header_ = *options_.columns;
    if (options_.columns) check_columns();
    if (!options_.csv) return;
    if (!schema::is_valid_utf8(header)) throw InputError("the table's header, " + not_utf8(1));
    if (header.find('\0') != std::string_view::npos) throw InputError("the table's header has a NUL byte: save the table as UTF-8");
    auto names = parse_csv_record(header, options_.delimiter);
    if (!names) throw InputError("the table's first line, its header, is not CSV: " + names.error());
    header_ = std::move(*names);
    check_columns();
}

std::vector<Table::Column> Table::columns_of_results() const {
    std::vector<Column> columns;
    if (options_.answer_schema && options_.spreads_objects) {
        const Json::Object* properties = properties_of(*options_.answer_schema);
        if (properties == nullptr) {
            throw InputError("the schema has no 'properties' to make columns from: add them, or write the output as JSON lines");
        }
        if (const auto other = keyword_of_others(*options_.answer_schema)) {
            throw InputError(
                fmt::format("the schema's '{}' lets an answer have members that no column holds: describe all of them in "
                            "'properties', or write the output as JSON lines",
                            *other));
        }
        for (const auto& [name, schema] : *properties)
            columns.push_back({.name = name, .kind = kind_of_property(schema, *options_.answer_schema)});
    }
    for (const ResultColumn& column : task_.columns)
        columns.push_back({.name = std::string(column.name), .kind = column.kind, .rounded = column.rounded});
    return columns;
}

// Of an answer that was cut off, its text. It is no object, and the row says so.
Table::Answer Table::answer_of(const Json& entry) const {
    Answer answer;
    for (const ResultColumn& column : task_.columns) answer.results.push_back(column.read(entry));
    if (!options_.answer_schema) return answer;
    Json& text = answer.results.back();
    const Json* finish = entry.find("finish_reason");
    const bool is_whole = finish != nullptr && finish->as_string() != nullptr && *finish->as_string() == "stop";
    const auto object = Json::parse(*text.as_string());
    const bool fits = is_whole && object && object->is_object();
    if (!is_whole) {
        answer.error =
            "the answer reached --max-tokens, or the end of the model's context, before it matched the schema: raise --max-tokens, shorten "
            "the row's text, or bound the schema's strings and arrays";
    } else if (!fits) {
        answer.error =
            fmt::format("the answer is no object that can be read: {}", object ? "it is " + std::string(object->kind()) : object.error());
    }
    if (!options_.spreads_objects) {
        if (fits) text = *object;
        return answer;
    }
    std::vector<Json> fields;
    for (const auto& [name, schema] : *properties_of(*options_.answer_schema)) {
        const Json* value = fits ? object->find(name) : nullptr;
        const bool is_text = kind_of_property(schema, *options_.answer_schema) == engine::ParquetKind::text;
        fields.push_back(value == nullptr || value->is_null() ? Json() : is_text ? Json(text_of(*value)) : *value);
    }
    if (fits) text = Json();
    answer.results.insert(answer.results.begin(), std::make_move_iterator(fields.begin()), std::make_move_iterator(fields.end()));
    return answer;
}

void Table::check_columns() const {
    if (const auto name = repeated(header_))
        throw InputError(fmt::format("the table has two columns named '{}': rename one", schema::shortened(*name)));
    const std::set<std::string_view> columns(header_.begin(), header_.end());
    const auto need = [&](std::string_view who, const std::string& name) {
        if (columns.contains(name)) return;
        throw InputError(fmt::format("{} the column '{}', which the table does not have; it has: {}{}", who, schema::shortened(name),
                                     listed(header_, names_shown), hint_at(header_, name)));
    };
    if (!options_.id_column.empty()) need("--id names", options_.id_column);
    if (options_.model_column) need("--adapter-column names", *options_.model_column);
    if (options_.second_column) need("--text-2 names", *options_.second_column);
    for (const std::string& name : template_.columns()) need(template_.asks(), name);
    for (const std::string& name : added_) {
        if (columns.contains(name)) {
            throw InputError(fmt::format("the table already has a column '{}': give --result-prefix", schema::shortened(name)));
        }
    }
}

std::optional<std::string> Table::read_row(std::string row, Delivery& delivery) const {
    const std::int64_t number = delivery.record.source.offset + 1;
    const auto parsed = parse(row);
    const std::string number_text = std::to_string(number);
    const std::string* id = parsed ? (options_.id_column.empty() ? &number_text : parsed->find(options_.id_column)) : nullptr;
    std::optional<std::string> empty;
    Json line = Json::Object();
    if (id != nullptr && schema::is_valid_utf8(*id)) line.set("custom_id", *id);
    if (!parsed) {
        const bool is_text = options_.csv || schema::is_valid_utf8(row);
        delivery.refusal = bad_row(schema::ErrorCode::invalid_row, "", is_text ? parsed.error() + extent_of(row) : not_utf8(number));
    } else if (id == nullptr || id->empty()) {
        delivery.refusal = bad_row(schema::ErrorCode::invalid_row, options_.id_column,
                                   fmt::format("the row's '{}', which names it, is {}: fill that column", options_.id_column,
                                               id == nullptr ? "missing" : "empty"));
    } else if (!schema::is_valid_utf8(*id)) {
        delivery.refusal = bad_row(schema::ErrorCode::invalid_text, "", not_utf8(number));
    } else if (auto error = add_job(*parsed, number, line)) {
        delivery.refusal = std::move(error);
    } else {
        std::vector<std::string> columns = template_.columns();
        if (options_.second_column) columns.push_back(*options_.second_column);
        for (const std::string& column : columns) {
            if (!empty && trimmed(*parsed->find(column)).empty()) empty = column;
        }
    }
    delivery.record.value = line.dump();
    delivery.record.headers.emplace_back(row_header, std::move(row));
    return empty;
}

std::optional<schema::JobError> Table::add_job(const Row& row, std::int64_t line_number, Json& line) const {
    const auto lacks = [&](const std::string& what) {
        return bad_row(schema::ErrorCode::missing_column, "",
                       fmt::format("{}; it has: {}", what, schema::repair_utf8(listed(row.names(), names_shown))));
    };
    auto prompt = template_.fill([&](const std::string& column) { return row.find(column); });
    if (!prompt) return lacks(prompt.error());
    bool is_text = schema::is_valid_utf8(*prompt);
    if (options_.second_column) {
        const std::string* second = row.find(*options_.second_column);
        if (second == nullptr) return lacks("the row has no column '" + *options_.second_column + "', which --text-2 names");
        is_text = is_text && schema::is_valid_utf8(*second);
    }
    if (!is_text) return bad_row(schema::ErrorCode::invalid_text, "", not_utf8(line_number));
    line.set("method", "POST");
    line.set("url", endpoint_.url);
    line.set("body", body_of(row, std::move(*prompt)));
    return std::nullopt;
}

Expected<schema::Job, schema::BadRecord> Table::sample_job() const {
    std::vector<std::pair<std::string, std::string>> fields;
    if (options_.second_column) fields.emplace_back(*options_.second_column, "text");
    Json line = Json::object({{"custom_id", "row"}, {"url", endpoint_.url}, {"body", body_of(Row(std::move(fields)), "text")}});
    return schema::parse_job({.source = {}, .key = {}, .value = line.dump(), .headers = {}, .timestamp = {}}, {});
}

std::optional<std::string> Table::error_of_model(const ModelName& model, const engine::ModelConfig& config) const {
    const auto job = sample_job();
    if (!job) return job.error().error.message;
    const auto work = work_of(*job, model, config);
    if (!work && work.error().code == schema::ErrorCode::unsupported_by_model) return work.error().message;
    if (!work || !is_work_of(options_.task, *work)) return fmt::format("this model cannot {}; it {}", task_.what, abilities_of(config));
    if (*work != Work::embed) return std::nullopt;
    const auto error = error_of_embedding(job->pooling, *config.embedder);
    return error ? std::optional(error->message) : std::nullopt;
}

std::optional<std::string> Table::error_of_limits(const ModelName& model, const Preparer& preparer) const {
    auto job = sample_job();
    CHECK(job, "error_of_model() was asked first");
    const auto tokenized = preparer.tokenize(std::move(*job), model);
    if (tokenized) return std::nullopt;
    // Other errors may be those of this text.
    const schema::JobError& error = tokenized.error().error;
    const bool is_by_flag = std::ranges::any_of(options_.fields, [&](const auto& field) { return error.param.starts_with(field.first); });
    return is_by_flag ? std::optional(error.message) : std::nullopt;
}

const std::string* Table::name_taken_in(const Json& row) const {
    const auto taken = std::ranges::find_if(added_, [&](const std::string& name) { return row.find(name) != nullptr; });
    return taken == added_.end() ? nullptr : &*taken;
}

Expected<Table::Row, std::string> Table::parse(std::string_view row) const {
    std::vector<std::pair<std::string, std::string>> named;
    if (!options_.csv) {
        const auto json = Json::parse(row);
        if (!json) return unexpected("the row is not JSON: " + json.error());
        if (!json->is_object()) return unexpected(fmt::format("the row is a JSON {}; a row is an object", json->kind()));
        if (const std::string* name = name_taken_in(*json))
            return unexpected(fmt::format("the row already has a member '{}': give --result-prefix", schema::shortened(*name)));
        for (const auto& [name, value] : *json->as_object()) named.emplace_back(name, text_of(value));
        return Row(std::move(named));
    }
    auto fields = parse_csv_record(row, options_.delimiter);
    if (!fields) return unexpected(fields.error());
    if (fields->size() != header_.size()) {
        std::string message = fmt::format("the row has {} fields, the header {}", fields->size(), header_.size());
        if (fields->size() > header_.size()) {
            const std::span<const std::string> beyond = std::span(*fields).subspan(header_.size());
            message += fmt::format("; after the last column it has: {} (a field with a {} in it must be quoted)",
                                   schema::shortened(schema::repair_utf8(encode_csv_record(beyond, options_.delimiter))),
                                   row_of_delimiter(options_.delimiter).name);
        } else {
            message += fmt::format("; add a {} for each missing field (a field with a line break in it must be quoted)",
                                   row_of_delimiter(options_.delimiter).name);
        }
        return unexpected(std::move(message));
    }
    for (std::size_t i = 0; i < header_.size(); ++i) named.emplace_back(header_[i], std::move((*fields)[i]));
    return Row(std::move(named));
}

Json Table::body_of(const Row& row, std::string prompt) const {
    const std::string* model = options_.model_column ? row.find(*options_.model_column) : nullptr;
    Json body = Json::object({{"model", model == nullptr || model->empty() ? options_.model : schema::repair_utf8(*model)}});
    if (options_.chat && task_.chat_endpoint) {
        Json::Array messages;
        if (!options_.system.empty()) messages.push_back(Json::object({{"role", "system"}, {"content", options_.system}}));
        messages.push_back(Json::object({{"role", "user"}, {"content", std::move(prompt)}}));
        body.set("messages", std::move(messages));
    } else {
        body.set(std::string(endpoint_.prompt_field), std::move(prompt));
    }
    if (options_.second_column) body.set("text_2", *row.find(*options_.second_column));
    if (!options_.choices.empty()) body.set("choices", Json::Array(options_.choices.begin(), options_.choices.end()));
    if (options_.task == RowTask::answer) {
        body.set("temperature", options_.temperature);
        if (options_.max_tokens) body.set("max_tokens", *options_.max_tokens);
    }
    for (const auto& [name, value] : options_.fields) body.set(name, value);
    return body;
}

std::vector<std::string> Table::columns_needed() const {
    std::vector<std::string> names = template_.columns();
    if (!options_.id_column.empty()) names.push_back(options_.id_column);
    if (options_.model_column) names.push_back(*options_.model_column);
    if (options_.second_column) names.push_back(*options_.second_column);
    return names;
}

std::vector<engine::ParquetColumn> Table::added_columns() const {
    std::vector<engine::ParquetColumn> columns;
    for (std::size_t i = 0; i < results_.size(); ++i) columns.push_back({.name = added_[i], .kind = results_[i].kind});
    columns.push_back({.name = added_.back(), .kind = engine::ParquetKind::text});
    return columns;
}

std::string Table::output_header() const {
    if (!options_.csv || options_.output != OutputRow::as_input) return {};
    std::vector<std::string> names = header_;
    names.insert(names.end(), added_.begin(), added_.end());
    return encode_csv_record(names, options_.output_delimiter.value_or(options_.delimiter)) + "\n";
}

std::string Table::output_row(std::string_view row, const schema::Completion& completion) const {
    Answer answer;
    if (completion.state != schema::JobState::completed) {
        answer.error = schema::error_text(completion);
    } else {
        const Json* list = completion.body.find(endpoint_.list_key);
        CHECK(list != nullptr && list->as_array() != nullptr && !list->as_array()->empty(), "a completion has an answer");
        answer = answer_of(list->as_array()->front());
    }
    return encode(row, answer);
}

std::string Table::output_row(std::string_view row, const schema::DeadLetter& letter) const {
    const std::int64_t first = letter.source.offset + 1;
    const auto more = std::ranges::count(row, '\n');  // a stray quote makes the following lines part of this row
    const std::string where = more == 0 ? fmt::format("line {}", first) : fmt::format("lines {} to {}", first, first + more);
    return encode(row, {.results = {}, .error = fmt::format("{}: {}: {}", name_of(letter.error.code), where, letter.error.message)});
}

std::vector<std::string> Table::fields_of(std::string_view row) const {
    // A row that is not valid CSV keeps its text in the first column; if it swallowed following lines, only its own line. The error shows
    // where text without a column begins.
    std::vector<std::string> fields =
        parse_csv_record(row, options_.delimiter).value_or(std::vector{std::string(row.substr(0, row.find('\n')))});
    fields.resize(header_.size());
    return fields;
}

// The columns of the input in a JSON row of the output.
Json Table::input_of(std::string_view row) const {
    if (options_.output == OutputRow::results) return Json::Object();
    if (options_.csv) {
        Json::Object members;
        const std::vector<std::string> fields = fields_of(row);
        for (std::size_t i = 0; i < fields.size(); ++i) members.emplace_back(header_[i], schema::repair_utf8(fields[i]));
        return members;
    }
    auto parsed = Json::parse(row);
    const bool is_kept = parsed && parsed->is_object() && name_taken_in(*parsed) == nullptr;
    return is_kept ? std::move(*parsed) : Json::object({{"row", schema::repair_utf8(row)}});
}

std::string Table::encode(std::string_view row, const Answer& answer) const {
    if (options_.csv && options_.output == OutputRow::as_input) return encode_csv(row, answer);
    const bool has_results = !answer.results.empty();
    Json line = input_of(row);
    for (std::size_t i = 0; i < results_.size(); ++i) line.set(added_[i], has_results ? answer.results[i] : Json());
    line.set(added_.back(), answer.error.empty() ? Json() : Json(answer.error));
    return line.dump() + "\n";
}

std::string Table::encode_csv(std::string_view row, const Answer& answer) const {
    const bool has_results = !answer.results.empty();
    std::vector<std::string> fields = fields_of(row);
    for (std::size_t i = 0; i < results_.size(); ++i) {
        fields.push_back(has_results ? cell_of(results_[i].rounded, answer.results[i]) : std::string());
    }
    fields.push_back(answer.error);
    return encode_csv_record(fields, options_.output_delimiter.value_or(options_.delimiter)) + "\n";
}

}  // namespace lorry::consumer
