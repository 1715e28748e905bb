// Parses and writes CSV records.
#include "consumer/file/table_csv.h"

#include <algorithm>

#include <fmt/format.h>

namespace lorry::consumer {
namespace {

constexpr CsvDelimiter delimiters[] = {
    {',', ",", "comma", "commas"}, {';', ";", "semicolon", "semicolons"}, {'\t', "tab", "tab", "tabs"}, {'|', "|", "bar", "bars"}};

}  // namespace

std::span<const CsvDelimiter> csv_delimiters() { return delimiters; }

const CsvDelimiter& row_of_delimiter(char byte) {
    const auto row = std::ranges::find(delimiters, byte, &CsvDelimiter::byte);
    CHECK(row != std::end(delimiters), "each delimiter has a row");
    return *row;
}

char delimiter_of(std::string_view header) {
    const auto separates = [&](const CsvDelimiter& delimiter) {
        const auto fields = parse_csv_record(header, delimiter.byte);
        return fields && fields->size() > 1;
    };
    const auto found = std::ranges::find_if(delimiters, separates);
    return found == std::end(delimiters) ? ',' : found->byte;
}

Expected<std::vector<std::string>, std::string> parse_csv_record(std::string_view record, char delimiter) {
    std::vector<std::string> fields;
    std::size_t at = 0;
    while (true) {
        std::string field;
        if (at < record.size() && record[at] == '"') {
            for (++at;; ++at) {
                if (at == record.size()) {
                    return unexpected(fmt::format("field {} begins with a quote that is never closed", fields.size() + 1));
                }
                if (record[at] != '"') {
                    field += record[at];
                } else if (at + 1 < record.size() && record[at + 1] == '"') {
                    field += record[at++];
                } else {
                    break;
                }
            }
            if (++at < record.size() && record[at] != delimiter) {
                return unexpected(
                    fmt::format("field {} continues after its closing quote; double a quote that belongs to the text", fields.size() + 1));
            }
        } else {
            const std::size_t end = std::min(record.find(delimiter, at), record.size());
            field = record.substr(at, end - at);
            at = end;
        }
        fields.push_back(std::move(field));
        if (at == record.size()) return fields;
        ++at;  // the delimiter
    }
}

std::string encode_csv_record(std::span<const std::string> fields, char delimiter) {
    const std::string special = std::string("\"\r\n") + delimiter;
    std::string record;
    for (std::size_t i = 0; i < fields.size(); ++i) {
        const std::string& field = fields[i];
        if (i > 0) record += delimiter;
        // Without quotes, a record of one empty field would be a blank line.
        if (field.find_first_of(special) == std::string::npos && !(field.empty() && fields.size() == 1)) {
            record += field;
            continue;
        }
        record += '"';
        for (const char byte : field) {
            if (byte == '"') record += '"';
            record += byte;
        }
        record += '"';
    }
    return record;
}

}  // namespace lorry::consumer
