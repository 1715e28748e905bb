// CSV as RFC 4180 writes it: one record's fields, and fields back to a record. Called by table_rows.cpp and sink.cpp. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schema/check.h"

namespace lorry::consumer {

// The fields of one record (without its line end). Quotes inside a field that does not begin with one are taken as they are. The error
// says what is wrong: a quoted field without an end, or text after its end.
Expected<std::vector<std::string>, std::string> parse_csv_record(std::string_view record);

// Quoted where needed, without line end.
std::string encode_csv_record(std::span<const std::string> fields);

}  // namespace lorry::consumer
