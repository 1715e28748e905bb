// Decides by the endings of names.
#include "ops/run/input_format.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "consumer/file/table_csv.h"
#include "ops/command.h"
#include "schema/ascii.h"

namespace lorry::ops {
namespace {

using consumer::FileFormat;
using consumer::PackedFormat;
using consumer::RecordFormat;
using consumer::TextEncoding;

std::string ending_of(const std::filesystem::path& file) { return schema::lower_case(file.extension().string()); }

bool is_packed(const std::string& ending) { return ending == ".gz" || ending == ".zst"; }

TextEncoding encoding_of(const std::string& word) {
    if (word == "windows-1252") return TextEncoding::windows1252;
    return word == "latin-1" ? TextEncoding::latin1 : TextEncoding::utf8;
}

// Of a table, by an ending without its dot or the word of --format; nullopt: it says nothing.
std::optional<FileFormat> format_named(std::string_view kind) {
    if (kind == "csv") return FileFormat{.records = RecordFormat::csv};
    if (kind == "tsv") return FileFormat{.records = RecordFormat::csv, .delimiter = '\t'};
    if (kind == "parquet") return FileFormat{.records = RecordFormat::parquet};
    if (kind == "jsonl" || kind == "ndjson" || kind == "json") return FileFormat{.records = RecordFormat::lines};
    return std::nullopt;
}

std::string_view without_dot(std::string_view ending) { return ending.substr(std::min<std::size_t>(1, ending.size())); }

FileFormat format_of_table(const std::string& input, const std::string& ending, const FormatFlags& flags) {
    const auto format = format_named(flags.format.empty() ? without_dot(ending) : flags.format);
    if (format) return *format;
    throw UsageError(
        fmt::format("{}: its name does not say which format the table has: give --format csv, --format tsv, --format jsonl or --format "
                    "parquet",
                    input));
}

void check_parquet_input(const std::string& input, const std::filesystem::path& name, const FormatFlags& flags) {
    constexpr std::string_view hint = "for an output in Parquet, a name after -o that ends in .parquet is enough";
    if (consumer::is_standard_input(input)) {
        throw UsageError(fmt::format(
            "a Parquet table comes from a file, because its end is read first: save it to a file, or leave --format parquet out if "
            "standard input is not Parquet ({})",
            hint));
    }
    if (name != input) throw UsageError(fmt::format("{}: Parquet is read as it is, not inside gzip or zstd: unpack it first", input));
    if (!flags.encoding.empty()) throw UsageError("--encoding is for text files: Parquet's texts are UTF-8");
    if (flags.format.empty()) return;
    std::string start(4, '\0');
    std::ifstream(input, std::ios::binary).read(start.data(), static_cast<std::streamsize>(start.size()));
    if (start.starts_with("PAR")) return;
    throw UsageError(fmt::format(
        "--format parquet says what {} is, and it is not Parquet: leave --format out, or give the format that it has ({})", input, hint));
}

// For messages: what a table or jobs become, where that is not what the name of the output says.
std::string_view outputs_of(bool is_table, RecordFormat input) {
    if (!is_table)
        return "results of jobs are JSON lines; give a name such as results.jsonl.zst. Tables give Parquet and CSV: their texts are "
               "named by --text or --template";
    switch (input) {
        case RecordFormat::csv: return "a CSV table gives CSV, TSV, JSON lines or Parquet";
        case RecordFormat::lines: return "a table of JSON lines gives JSON lines or Parquet: give a name that ends in .jsonl or .parquet";
        case RecordFormat::parquet: return "a Parquet table gives Parquet or JSON lines: give a name that ends in .parquet or .jsonl";
    }
    CHECK(false, "a format is one of these");
}

}  // namespace

FileFormat format_of_input(const std::string& input, bool is_table, const FormatFlags& flags) {
    std::filesystem::path name = input;
    if (is_packed(ending_of(name))) name = name.stem();
    const std::string ending = ending_of(name);
    for (const char* other : {".gz", ".zst", ".bz2", ".xz", ".zip", ".7z", ".xlsx", ".ods"}) {
        if (ending != other) continue;
        throw UsageError(fmt::format("{}: {} files are not read: unpack it{} (gzip and zstd are unpacked on the way, once)", input, other,
                                     is_table ? ", or save it as CSV" : ""));
    }
    if (!is_table) {
        if (ending != ".csv" && ending != ".tsv" && ending != ".parquet") return {};
        throw UsageError(
            fmt::format("{} is a table: name the column with the texts with --text COLUMN, or give a prompt with --template "
                        "FILE; --id COLUMN names a column that identifies the rows",
                        input));
    }
    FileFormat format = format_of_table(input, ending, flags);
    format.encoding = encoding_of(flags.encoding);
    if (format.records == RecordFormat::parquet) check_parquet_input(input, name, flags);
    if (flags.delimiter.empty()) return format;
    if (format.records != RecordFormat::csv) throw UsageError("--delimiter separates the columns of CSV, and the table is not CSV");
    const auto delimiters = consumer::csv_delimiters();
    format.delimiter = std::ranges::find(delimiters, flags.delimiter, &consumer::CsvDelimiter::word)->byte;
    return format;
}

OutputFormat format_of_output(const std::string& output, bool is_table, RecordFormat input) {
    const std::string ending = ending_of(output);
    const std::string inner = is_packed(ending) ? ending_of(std::filesystem::path(output).stem()) : ending;
    const std::optional<FileFormat> named = format_named(without_dot(inner));
    if (named && named->records == RecordFormat::parquet && is_packed(ending)) {
        throw UsageError(fmt::format("-o {}: Parquet is compressed by itself: give a name without {}", output, ending));
    }
    const bool gives_all = is_table && input == RecordFormat::csv;
    const bool is_refused =
        named && (named->records == RecordFormat::csv ? !gives_all : named->records == RecordFormat::parquet && !is_table);
    if (is_refused) throw UsageError(fmt::format("-o {}: {}", output, outputs_of(is_table, input)));
    OutputFormat format;
    const bool is_special = std::filesystem::exists(output) && !std::filesystem::is_regular_file(output);
    if (!is_special && ending == ".parquet") format.packing = PackedFormat::parquet;
    if (!is_special && ending == ".gz") format.packing = PackedFormat::gzip;
    if (!is_special && ending == ".zst") format.packing = PackedFormat::zstd;
    if (gives_all && (!named || named->records == RecordFormat::csv)) {
        format.rows = RecordFormat::csv;
        if (named) format.delimiter = named->delimiter;
    }
    return format;
}

CsvHeader read_csv_header(const std::string& input, const FormatFlags& flags, std::size_t record_bytes_max, FileFormat& format) {
    const auto read = [&] {
        auto first = consumer::FileReader(input, format, record_bytes_max).next(std::chrono::seconds(60));
        if (!first) throw UsageError(fmt::format("{} is empty: a CSV table begins with the names of its columns", input));
        if (first->cut) {
            throw UsageError(
                fmt::format("{}: the first line, which names the columns, is longer than the {} bytes of job_bytes_max: "
                            "shorten the names or take out columns, or raise --job-bytes-max",
                            input, record_bytes_max));
        }
        return std::move(first->text);
    };
    CsvHeader header{.text = read()};
    if (!flags.delimiter.empty() || format.delimiter != ',') return header;
    const char found = consumer::delimiter_of(header.text);
    if (found == format.delimiter) return header;
    format.delimiter = found;
    return {.text = read(), .delimiter_was_found = true};  // quotes may end elsewhere now
}

}  // namespace lorry::ops
