// CSV according to RFC 4180: splits a record into fields and joins fields into a record. Called by table_rows.cpp. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schema/check.h"

namespace lorry::consumer {

// Returns the fields of one record (given without its line end). Quotes inside a field that does not start with one are taken literally.
// Fails with a message when a quoted field has no end, or text follows its end.
Expected<std::vector<std::string>, std::string> parse_csv_record(std::string_view record);

// Joins fields into a record, quoted where needed, without line end.
std::string encode_csv_record(std::span<const std::string> fields);

}  // namespace lorry::consumer
