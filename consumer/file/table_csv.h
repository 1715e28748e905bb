// CSV according to RFC 4180, with any delimiter: splits a record into fields and joins fields into one. Called by table_rows.cpp. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schema/check.h"

namespace lorry::consumer {

// A character that may separate columns.
struct CsvDelimiter {
    char byte;
    std::string_view word;    // of --delimiter
    std::string_view name;    // "comma"
    std::string_view plural;  // "commas"
};
// All of them, the comma first.
std::span<const CsvDelimiter> csv_delimiters();
const CsvDelimiter& row_of_delimiter(char byte);
// The one that separates the columns of a header. A header without commas that has another one is separated by that.
char delimiter_of(std::string_view header);

// Returns the fields of one record (given without its line end). Quotes inside a field that does not start with one are taken literally.
// Fails with a message when a quoted field has no end, or text follows its end.
Expected<std::vector<std::string>, std::string> parse_csv_record(std::string_view record, char delimiter = ',');

// Joins fields into a record, quoted where needed, without line end.
std::string encode_csv_record(std::span<const std::string> fields, char delimiter = ',');

}  // namespace lorry::consumer
