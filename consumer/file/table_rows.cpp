// Parses the template and the rows, and writes rows with their results.
#include "consumer/file/table_rows.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>

#include <fmt/format.h>

#include "consumer/file/listed.h"
#include "consumer/file/table_csv.h"
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
    std::string result;  // text or label
    std::optional<double> probability;
    std::string error;
};

namespace {

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

constexpr std::size_t names_shown = 20;  // limited, because each of a million rows may repeat it

// A guess why a header lacks a column.
std::string hint_at(const std::vector<std::string>& header, const std::string& missing) {
    for (const auto& [separator, name] : {std::pair(';', "semicolons"), std::pair('\t', "tabs"), std::pair('|', "vertical bars")}) {
        if (header.size() == 1 && header.front().find(separator) != std::string::npos) {
            return fmt::format("; they seem to be separated by {}: save the table with commas", name);
        }
    }
    const bool padded = std::ranges::any_of(header, [&](const std::string& name) { return name != missing && trimmed(name) == missing; });
    return padded ? "; that name has spaces around it in the header: remove them" : "";
}

schema::JobError bad_row(schema::ErrorCode code, std::string param, std::string message) {
    return {.code = code, .param = std::move(param), .message = std::move(message)};
}

// What each row asks.
schema::Endpoint endpoint_of(const TableOptions& options) {
    if (!options.choices.empty()) return schema::Endpoint::classify;
    return options.chat ? schema::Endpoint::chat_completions : schema::Endpoint::completions;
}

// A JSON field as text, as the template inserts it.
std::string text_of(const Json& value) {
    if (const std::string* text = value.as_string()) return *text;
    return value.is_null() ? std::string() : value.dump();
}

}  // namespace

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

Table::Table(TableOptions options, std::string_view header)
    : options_(std::move(options)), endpoint_(schema::row_of(endpoint_of(options_))), template_(options_.prompt_template) {
    added_ =
        options_.choices.empty() ? std::vector<std::string>{"result", "error"} : std::vector<std::string>{"label", "probability", "error"};
    for (std::string& name : added_) name.insert(0, options_.result_prefix);
    if (template_.columns().empty()) {
        throw InputError("the template uses no column, so every row would ask the same: write {{ column }} where a row's text belongs");
    }
    if (!options_.csv) return;
    if (!schema::is_valid_utf8(header) || header.find('\0') != std::string_view::npos) {
        throw InputError("the table is not UTF-8: save it in that encoding");
    }
    auto names = parse_csv_record(header);
    if (!names) throw InputError("the table's first line, its header, is not CSV: " + names.error());
    header_ = std::move(*names);
    if (const auto name = repeated(header_))
        throw InputError(fmt::format("the table has two columns named '{}': rename one", schema::shortened(*name)));
    const std::set<std::string_view> columns(header_.begin(), header_.end());
    const auto need = [&](std::string_view who, const std::string& name) {
        if (columns.contains(name)) return;
        throw InputError(fmt::format("{} the column '{}', which the table does not have; it has: {}{}", who, schema::shortened(name),
                                     listed(header_, names_shown), hint_at(header_, name)));
    };
    need("--id names", options_.id_column);
    if (options_.model_column) need("--adapter-column names", *options_.model_column);
    for (const std::string& name : template_.columns()) need("the template asks for", name);
    for (const std::string& name : added_) {
        if (columns.contains(name)) {
            throw InputError(fmt::format("the table already has a column '{}': give --result-prefix", schema::shortened(name)));
        }
    }
}

std::optional<std::string> Table::read_row(std::string row, Delivery& delivery) const {
    const auto refuse = [&](schema::ErrorCode code, std::string param, std::string message) {
        delivery.refusal = bad_row(code, std::move(param), std::move(message));
    };
    const auto parsed = parse(row);
    const std::string* id = parsed ? parsed->find(options_.id_column) : nullptr;
    std::optional<std::string> empty;
    Json line = Json::Object();
    if (id != nullptr && schema::is_valid_utf8(*id)) line.set("custom_id", *id);
    if (!parsed) {
        refuse(schema::ErrorCode::invalid_row, "", parsed.error());
    } else if (id == nullptr || id->empty()) {
        refuse(schema::ErrorCode::invalid_row, options_.id_column,
               fmt::format("the row's '{}', which names it, is {}: fill that column", options_.id_column,
                           id == nullptr ? "missing" : "empty"));
    } else if (auto prompt = template_.fill([&](const std::string& column) { return parsed->find(column); }); !prompt) {
        refuse(schema::ErrorCode::missing_column, "",
               fmt::format("{}; it has: {}", prompt.error(), schema::repair_utf8(listed(parsed->names(), names_shown))));
    } else if (!schema::is_valid_utf8(*prompt) || !schema::is_valid_utf8(*id)) {
        refuse(schema::ErrorCode::invalid_text, "", "the row is not UTF-8: save the table in that encoding");
    } else {
        line.set("method", "POST");
        line.set("url", endpoint_.url);
        line.set("body", body_of(*parsed, std::move(*prompt)));
        for (const std::string& column : template_.columns()) {
            if (!empty && trimmed(*parsed->find(column)).empty()) empty = column;
        }
    }
    delivery.record.value = line.dump();
    delivery.record.headers.emplace_back(row_header, std::move(row));
    return empty;
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
    auto fields = parse_csv_record(row);
    if (!fields) return unexpected(fields.error());
    if (fields->size() != header_.size()) {
        std::string message = fmt::format("the row has {} fields, the header {}", fields->size(), header_.size());
        if (fields->size() > header_.size()) {
            const std::span<const std::string> beyond = std::span(*fields).subspan(header_.size());
            message += fmt::format("; after the last column it has: {} (a field with a comma in it must be quoted)",
                                   schema::shortened(schema::repair_utf8(encode_csv_record(beyond))));
        } else {
            message += "; add a comma for each missing field (a field with a line break in it must be quoted)";
        }
        return unexpected(std::move(message));
    }
    for (std::size_t i = 0; i < header_.size(); ++i) named.emplace_back(header_[i], std::move((*fields)[i]));
    return Row(std::move(named));
}

Json Table::body_of(const Row& row, std::string prompt) const {
    const std::string* model = options_.model_column ? row.find(*options_.model_column) : nullptr;
    Json body = Json::object({{"model", model == nullptr || model->empty() ? options_.model : schema::repair_utf8(*model)}});
    if (options_.chat) {
        Json::Array messages;
        if (!options_.system.empty()) messages.push_back(Json::object({{"role", "system"}, {"content", options_.system}}));
        messages.push_back(Json::object({{"role", "user"}, {"content", std::move(prompt)}}));
        body.set("messages", std::move(messages));
    } else {
        body.set(std::string(endpoint_.prompt_field), std::move(prompt));
    }
    if (!options_.choices.empty()) {
        body.set("choices", Json::Array(options_.choices.begin(), options_.choices.end()));
    } else {
        body.set("temperature", options_.temperature);
        if (options_.max_tokens) body.set("max_tokens", *options_.max_tokens);
    }
    return body;
}

std::string Table::output_header() const {
    if (!options_.csv) return {};
    std::vector<std::string> names = header_;
    names.insert(names.end(), added_.begin(), added_.end());
    return encode_csv_record(names) + "\n";
}

std::string Table::output_row(std::string_view row, const schema::Completion& completion) const {
    Answer answer;
    const auto text_at = [](const Json* object, std::string_view key) {
        const Json* value = object == nullptr ? nullptr : object->find(key);
        return value == nullptr || !value->is_string() ? std::string() : *value->as_string();
    };
    if (completion.state != schema::JobState::completed) {
        answer.error = schema::error_text(completion);
    } else {
        const Json* list = completion.body.find(endpoint_.list_key);
        CHECK(list != nullptr && list->as_array() != nullptr && !list->as_array()->empty(), "a completion has an answer");
        const Json& first = list->as_array()->front();
        if (endpoint_.generation) {
            switch (endpoint_.generation->shape) {
                case schema::TextShape::message: answer.result = text_at(first.find("message"), "content"); break;
                case schema::TextShape::text: answer.result = text_at(&first, "text"); break;
            }
        } else {
            answer.result = text_at(&first, "label");
            answer.probability = 0.0;
            for (const Json& probability : *first.find("probs")->as_array()) {
                answer.probability = std::max(*answer.probability, probability.as_number().value_or(0.0));
            }
        }
    }
    return encode(row, answer);
}

std::string Table::output_row(std::string_view row, const schema::DeadLetter& letter) const {
    const std::int64_t first = letter.source.offset + 1;
    const auto more = std::ranges::count(row, '\n');  // a stray quote makes the following lines part of this row
    const std::string where = more == 0 ? fmt::format("line {}", first) : fmt::format("lines {} to {}", first, first + more);
    return encode(row,
                  {.result = {},
                   .probability = {},
                   .error = fmt::format("{}: {}: {}", name_of(letter.error.code), where, letter.error.message)});
}

std::string Table::encode(std::string_view row, const Answer& answer) const {
    if (!options_.csv) {
        auto parsed = Json::parse(row);
        const bool is_kept = parsed && parsed->is_object() && name_taken_in(*parsed) == nullptr;
        Json line = is_kept ? std::move(*parsed) : Json::object({{"row", schema::repair_utf8(row)}});
        line.set(added_.front(), answer.error.empty() ? Json(answer.result) : Json());
        if (added_.size() == 3) line.set(added_[1], answer.probability);
        line.set(added_.back(), answer.error.empty() ? Json() : Json(answer.error));
        return line.dump() + "\n";
    }
    // A row that is not valid CSV keeps its text in the first column; if it swallowed following lines, only its own line. The error shows
    // where text without a column begins.
    std::vector<std::string> fields = parse_csv_record(row).value_or(std::vector{std::string(row.substr(0, row.find('\n')))});
    fields.resize(header_.size());
    fields.push_back(answer.result);
    if (added_.size() == 3) fields.push_back(answer.probability ? fmt::format("{:.6f}", *answer.probability) : std::string());
    fields.push_back(answer.error);
    return encode_csv_record(fields) + "\n";
}

}  // namespace lorry::consumer
