// Reads the jobs of `lorry run` from the lines of a file or of standard input, or from the rows of a table (table_rows.h). Skips records
// that an earlier run finished and refuses a repeated custom_id. Jobs appear as partition 0 of a topic named after the file; a record's
// offset is its line, from 0.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "consumer/file/reader.h"
#include "consumer/file/record_set.h"
#include "consumer/file/table_rows.h"
#include "consumer/seams.h"

namespace lorry::consumer {

struct FileSourceOptions {
    std::filesystem::path file;  // "-": standard input
    std::string topic;           // the file's name
    FileFormat format;
    std::size_t record_bytes_max = 64 << 20;  // longer records are cut and refused
    const Table* table = nullptr;             // records are rows, not jobs; must outlive the source
    RecordSet done;                           // records to skip
    std::optional<RecordSet> chosen;          // if set, only these of the remaining records are delivered
    std::optional<std::int64_t> total;        // number of records in the file, for backlog()
};

// Rows with an empty cell in a column that the prompt uses.
struct EmptyCells {
    std::int64_t rows = 0;
    std::int64_t first_line = 0;
    std::string first_column;
};

class FileSource final : public JobSource {
public:
    // Throws std::runtime_error when the file cannot be opened.
    explicit FileSource(FileSourceOptions options);

    std::vector<Delivery> poll(std::chrono::milliseconds timeout, std::size_t max, RevocationHandler& handler) override;
    bool exhausted() const override { return reader_.is_at_end(); }
    std::optional<std::int64_t> backlog() override;
    void close(RevocationHandler& handler, Clock::time_point deadline) override;
    // Counts the rows that were delivered so far and not refused.
    const EmptyCells& empty_cells() const { return empty_cells_; }

private:
    std::optional<Delivery> delivery_of(FileRecord record);

    FileSourceOptions options_;
    FileReader reader_;
    TextSet ids_;
    EmptyCells empty_cells_;
    std::int64_t read_ = 0;  // records
};

// Chooses `count` of the file's `total` non-blank records, spread evenly; always the same ones. For --sample.
RecordSet spread_sample(const std::filesystem::path& file, FileFormat format, std::int64_t count, std::int64_t total);

}  // namespace lorry::consumer
