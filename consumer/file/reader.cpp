// Reads a file in large pieces and splits it into records.
#include "consumer/file/reader.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "consumer/file/error.h"
#include "consumer/file/parquet_lines.h"
#include "engine/files.h"
#include "schema/json.h"

namespace lorry::consumer {
namespace {

constexpr std::size_t buffer_bytes = 256 << 10;

bool is_blank(char byte) { return byte == ' ' || byte == '\t' || byte == '\r'; }

struct Signature {
    std::string_view start;
    std::string_view error;
};
constexpr Signature signatures[] = {
    {engine::lfs_pointer_start, engine::lfs_pointer_error},
    {"\x1F\x8B", "the file is compressed with gzip inside a compressed file; decompress it once"},
    {"\x28\xB5\x2F\xFD", "the file is compressed with zstd inside a compressed file; decompress it once"},
    {"PAR1", "the file is Parquet; give it a name that ends in .parquet, or --format parquet"},
    {"\xFD\x37zXZ", "the file is compressed with xz; decompress it with unxz"},
    {"PK\x03\x04", "the file is a ZIP archive or an Excel workbook; save the table as CSV in UTF-8"},
    {"\xFF\xFE", "the file is UTF-16; save it as UTF-8"},
    {"\xFE\xFF", "the file is UTF-16; save it as UTF-8"},
};

// What a file that begins like this is instead of JSONL or CSV, and what to do; empty: nothing else is recognized. Without this, each line
// would be an error of its own.
std::string_view mistaken_file(std::string_view start, RecordFormat format) {
    for (const Signature& signature : signatures) {
        if (start.starts_with(signature.start)) return signature.error;
    }
    if (start.size() >= 2 && (start[0] == '\0') != (start[1] == '\0')) return "the file is UTF-16; save it as UTF-8";
    if (format == RecordFormat::csv) return {};
    const std::size_t first = std::min(start.find_first_not_of(" \t\r\n"), start.size());
    if (start.substr(first).starts_with('[')) {
        return "the file is a JSON array; write each of its elements in a line of its own: jq -c '.[]' FILE";
    }
    const std::size_t second = start.find_first_not_of(" \t\r", std::min(first + 1, start.size()));
    if (start.substr(first).starts_with('{') && second != start.npos && start[second] == '\n') {
        return "the file has JSON objects of several lines; write each in one line: jq -c . FILE";
    }
    return {};
}

std::unique_ptr<ByteSource> bytes_of(const std::filesystem::path& file, const FileFormat& format) {
    if (format.records == RecordFormat::parquet) return std::make_unique<ParquetLines>(file, format.columns);
    return std::make_unique<InputBytes>(file);
}

}  // namespace

FileReader::FileReader(const std::filesystem::path& file, FileFormat format, std::size_t record_bytes_max)
    : format_(std::move(format)),
      record_bytes_max_(record_bytes_max),
      bytes_(bytes_of(file, format_)),
      buffer_(std::make_unique<char[]>(buffer_bytes)) {}

std::optional<FileRecord> FileReader::next(std::chrono::milliseconds timeout) {
    while (!at_end_) {
        if (buffer_begin_ == buffer_end_ && !end_seen_ && !fill(timeout)) return std::nullopt;
        if (scan()) {
            const bool blank = blank_;
            FileRecord record = take();
            if (!blank) return record;
        } else if (end_seen_ && buffer_begin_ == buffer_end_) {
            at_end_ = true;
            if (format_.records == RecordFormat::csv && quote_ == Quote::inside) {
                throw InputError(
                    fmt::format("{}: the quote that opens a field in line {} is never closed, so everything up to line {} would be one "
                                "row: close it, or write it twice in a quoted field if it belongs to the text",
                                bytes_->name(), quote_line_, line_));
            }
            if (started_ && !blank_) return take();
        }
    }
    return std::nullopt;
}

// Returns false when nothing arrived within the timeout.
bool FileReader::fill(std::chrono::milliseconds timeout) {
    const bool at_start = line_ == 1 && !started_ && buffer_end_ == 0;
    std::size_t filled = 0;
    do {
        const auto got = bytes_->read({buffer_.get() + filled, buffer_bytes - filled}, timeout);
        if (!got && filled == 0) return false;
        end_seen_ = got == std::size_t{0};
        filled += got.value_or(0);
    } while (at_start && !end_seen_ && filled < schema::byte_order_mark.size());
    buffer_begin_ = 0;
    buffer_end_ = filled;
    if (at_start && std::string_view(buffer_.get(), buffer_end_).starts_with(schema::byte_order_mark))
        buffer_begin_ = schema::byte_order_mark.size();
    if (at_start && format_.records != RecordFormat::parquet) check_start();
    return true;
}

void FileReader::check_start() const {
    const std::string_view error = mistaken_file({buffer_.get() + buffer_begin_, buffer_end_ - buffer_begin_}, format_.records);
    if (!error.empty()) throw InputError(fmt::format("{}: {}", bytes_->name(), error));
}

// Moves bytes from the buffer into the record; returns true when the record is complete.
bool FileReader::scan() {
    const char* const begin = buffer_.get() + buffer_begin_;
    const char* const end = buffer_.get() + buffer_end_;
    const char* at = begin;
    bool complete = false;
    if (begin != end && !started_) {
        started_ = true;
        record_.line = line_;
    }
    if (format_.records != RecordFormat::csv) {
        at = std::find(begin, end, '\n');
        complete = at != end;
        if (complete) ++line_;
    } else {
        for (; at != end && !complete; ++at) {
            const char byte = *at;
            if (byte == '\n') ++line_;
            if (quote_ == Quote::inside) {
                if (byte == '"') quote_ = Quote::maybe_closed;
            } else if (byte == '"' && quote_ != Quote::outside) {
                if (quote_ == Quote::field_start) quote_line_ = line_;
                quote_ = Quote::inside;  // opens a field, or the second of a doubled quote
            } else if (byte == '\n') {
                complete = true;
            } else {
                quote_ = byte == format_.delimiter ? Quote::field_start : Quote::outside;
            }
        }
        if (complete) --at;
    }
    if (blank_) blank_ = std::all_of(begin, at, is_blank);
    const std::size_t room = record_bytes_max_ - record_.text.size();
    const auto length = static_cast<std::size_t>(at - begin);
    record_.text.append(begin, std::min(room, length));
    record_.cut = record_.cut || length > room;
    buffer_begin_ += length + (complete ? 1 : 0);
    return complete;
}

FileRecord FileReader::take() {
    FileRecord record = std::move(record_);
    if (!record.cut && record.text.ends_with('\r')) record.text.pop_back();
    if (format_.encoding != TextEncoding::utf8) record.text = to_utf8(record.text, format_.encoding);
    record_ = {};
    blank_ = true;
    started_ = false;
    quote_ = Quote::field_start;
    return record;
}

FileContent content_of(const std::filesystem::path& file) {
    FileContent content;
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) fail_file(file, "opened");
    const auto state = std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)>(XXH3_createState(), XXH3_freeState);
    XXH3_128bits_reset(state.get());
    const auto buffer = std::make_unique<char[]>(buffer_bytes);
    ssize_t got = 0;
    while ((got = ::read(descriptor, buffer.get(), buffer_bytes)) > 0 || (got < 0 && errno == EINTR)) {
        if (got < 0) continue;
        XXH3_128bits_update(state.get(), buffer.get(), static_cast<std::size_t>(got));
        content.bytes += got;
    }
    const int error = errno;
    ::close(descriptor);
    if (got < 0) {
        errno = error;
        fail_file(file, "read");
    }
    const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
    content.hash = fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
    return content;
}

FileSummary summarize_file(const std::filesystem::path& file, FileFormat format) {
    FileSummary summary{.content = content_of(file)};
    FileReader reader(file, format, 0);
    while (const auto record = reader.next(std::chrono::milliseconds(1000))) ++summary.records;
    if (format.records == RecordFormat::csv && summary.records > 0) --summary.records;
    return summary;
}

}  // namespace lorry::consumer
