// Reads an input file as records: the lines of a JSONL file, the records of a CSV file (RFC 4180: a quoted field may contain line ends), or
// the rows of a Parquet file as JSON objects (parquet_lines.h).
// Files that are compressed with gzip or zstd are unpacked on the way (input_bytes.h).
// Called by source.cpp, sink.cpp and by `run`, `submit` and `bench loss`. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "consumer/file/encoding.h"
#include "consumer/file/input_bytes.h"

namespace lorry::consumer {

enum class RecordFormat : std::uint8_t { lines, csv, parquet };

struct FileFormat {
    RecordFormat records = RecordFormat::lines;
    char delimiter = ',';  // between the fields of a CSV record
    TextEncoding encoding = TextEncoding::utf8;
    std::optional<std::vector<std::string>> columns = {};  // of a Parquet file: those to read; nullopt: all
};

struct FileRecord {
    std::int64_t line = 0;  // the line of the file where the record begins, or the number of a Parquet row, from 1; identifies the record
    std::string text;       // without its line end
    bool cut = false;       // longer than the limit; the rest was skipped
};

class FileReader {
public:
    // Throws std::runtime_error naming the file when it cannot be opened. Skips a byte order mark at the start.
    FileReader(const std::filesystem::path& file, FileFormat format, std::size_t record_bytes_max);
    FileReader(const FileReader&) = delete;
    FileReader& operator=(const FileReader&) = delete;

    // The next record that is not blank. nullopt at the end, or if nothing arrived within the timeout (standard input only). Throws
    // std::runtime_error when the file cannot be read, and InputError when a CSV file ends inside a quoted field, when compressed data or
    // Parquet is damaged, or when the file is recognized as something else: a workbook, UTF-16, a JSON array.
    std::optional<FileRecord> next(std::chrono::milliseconds timeout);
    bool is_at_end() const { return at_end_; }

private:
    bool fill(std::chrono::milliseconds timeout);
    void check_start() const;
    bool scan();
    FileRecord take();

    const FileFormat format_;
    const std::size_t record_bytes_max_;
    std::unique_ptr<ByteSource> bytes_;
    std::unique_ptr<char[]> buffer_;
    std::size_t buffer_begin_ = 0;  // unread bytes are [buffer_begin_, buffer_end_)
    std::size_t buffer_end_ = 0;
    bool at_end_ = false;  // end of file, and nothing is left in the buffer or the record
    bool end_seen_ = false;

    // Where the scan is in the current record.
    enum class Quote : std::uint8_t { field_start, outside, inside, maybe_closed };
    Quote quote_ = Quote::field_start;
    bool blank_ = true;
    bool started_ = false;
    FileRecord record_;
    std::int64_t line_ = 1;
    std::int64_t quote_line_ = 0;  // line where the last quoted field began
};

// The bytes as they are in the file, compressed or not.
struct FileContent {
    std::int64_t bytes = 0;
    std::string hash;  // xxh128, 32 hex digits
};
// Throws std::runtime_error naming the file when it cannot be read.
FileContent content_of(const std::filesystem::path& file);

// Summary of a whole input, read once at the start, so that progress is exact, a changed file is noticed, and what cannot be read is found
// before anything was computed.
struct FileSummary {
    FileContent content;
    std::int64_t records = 0;  // without blank records and a CSV file's header
};
// Throws like FileReader::next().
FileSummary summarize_file(const std::filesystem::path& file, FileFormat format);

}  // namespace lorry::consumer
