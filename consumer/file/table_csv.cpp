// Parses and writes CSV records.
#include "consumer/file/table_csv.h"

#include <fmt/format.h>

namespace lorry::consumer {

Expected<std::vector<std::string>, std::string> parse_csv_record(std::string_view record) {
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
            if (++at < record.size() && record[at] != ',') {
                return unexpected(
                    fmt::format("field {} continues after its closing quote; double a quote that belongs to the text", fields.size() + 1));
            }
        } else {
            const std::size_t end = std::min(record.find(',', at), record.size());
            field = record.substr(at, end - at);
            at = end;
        }
        fields.push_back(std::move(field));
        if (at == record.size()) return fields;
        ++at;  // the comma
    }
}

std::string encode_csv_record(std::span<const std::string> fields) {
    std::string record;
    for (std::size_t i = 0; i < fields.size(); ++i) {
        const std::string& field = fields[i];
        if (i > 0) record += ',';
        // Without quotes, a record of one empty field would be a blank line.
        if (field.find_first_of(",\"\r\n") == std::string::npos && !(field.empty() && fields.size() == 1)) {
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
