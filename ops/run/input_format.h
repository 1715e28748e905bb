// What kind of file the input of `lorry run` is: by its name, by flags, and, of a CSV table, by its header; and what kind the output is, by
// its name. Called by run.cpp.
#pragma once

#include <optional>
#include <string>

#include "consumer/file/packed_output.h"
#include "consumer/file/reader.h"

namespace lorry::ops {

// What flags say; empty: nothing.
struct FormatFlags {
    std::string format;     // csv, tsv, jsonl or parquet
    std::string delimiter;  // the word of a CsvDelimiter
    std::string encoding;   // utf-8, windows-1252 or latin-1
};

// The format of a table, or of job lines. Throws UsageError for a name of another format, before a line is read.
consumer::FileFormat format_of_input(const std::string& input, bool is_table, const FormatFlags& flags);

// What the output is, by the ending of its name. An ending that says nothing leaves the format of the input.
struct OutputFormat {
    std::optional<consumer::PackedFormat> packing;                // at the end of the run; nullopt: results are appended to it
    consumer::RecordFormat rows = consumer::RecordFormat::lines;  // CSV or lines; in Parquet, what its rows are made of: lines
    std::optional<char> delimiter;                                // that the ending gives CSV
};
// Throws UsageError for a format that this input does not give, and names those that it gives.
OutputFormat format_of_output(const std::string& output, bool is_table, consumer::RecordFormat input);

struct CsvHeader {
    std::string text;
    bool delimiter_was_found = false;  // in the header, as it is not the format's
};
// The first record of a CSV table, without its line end. Corrects the format's delimiter by it, unless flags or the name have said it.
// Throws UsageError.
CsvHeader read_csv_header(const std::string& input, const FormatFlags& flags, std::size_t record_bytes_max, consumer::FileFormat& format);

}  // namespace lorry::ops
