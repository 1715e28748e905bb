// Input files as records: the lines of a JSONL file, or the records of a CSV file (RFC 4180: a quoted field may hold line ends).
// Called by source.cpp, sink.cpp and ops/ (`run`). One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace lorry::consumer {

enum class RecordFormat : std::uint8_t { lines, csv };

struct FileRecord {
    std::int64_t line = 0;  // of the file, where the record begins, from 1; names the record
    std::string text;       // without its line end
    bool cut = false;       // longer than the limit: the rest was passed over
};

// Standard input as a file's name.
bool is_standard_input(const std::filesystem::path& file);

class FileReader {
public:
    // Throws std::runtime_error naming the file when it cannot be opened. A byte order mark at the start is passed over.
    FileReader(const std::filesystem::path& file, RecordFormat format, std::size_t record_bytes_max);
    ~FileReader();
    FileReader(const FileReader&) = delete;
    FileReader& operator=(const FileReader&) = delete;

    // The next record that is not blank. nullopt: the end, or nothing came within the timeout (standard input only). Throws when the
    // file cannot be read, TableError when a CSV file ends inside a quoted field.
    std::optional<FileRecord> next(std::chrono::milliseconds timeout);
    bool is_at_end() const { return at_end_; }

private:
    bool fill(std::chrono::milliseconds timeout);
    bool scan();
    FileRecord take();

    const std::string name_;
    const RecordFormat format_;
    const std::size_t record_bytes_max_;
    int descriptor_ = -1;
    std::unique_ptr<char[]> buffer_;
    std::size_t buffer_begin_ = 0;  // unread bytes are [buffer_begin_, buffer_end_)
    std::size_t buffer_end_ = 0;
    bool at_end_ = false;  // of the file; nothing is left in the buffer or the record
    bool end_seen_ = false;

    // Where the scan stands inside the current record.
    enum class Quote : std::uint8_t { field_start, outside, inside, maybe_closed };
    Quote quote_ = Quote::field_start;
    bool blank_ = true;
    bool started_ = false;
    FileRecord record_;
    std::int64_t line_ = 1;
    std::int64_t quote_line_ = 0;  // where the last quoted field began
};

// What a whole input is: read once at the start, so that progress is exact and a changed file is noticed.
struct FileSummary {
    std::int64_t bytes = 0;
    std::int64_t records = 0;  // not blank ones, a CSV file's header not counted
    std::string hash;          // xxh128 of the bytes, 32 hex digits
};
// Throws as FileReader::next does.
FileSummary summarize_file(const std::filesystem::path& file, RecordFormat format);

}  // namespace lorry::consumer
