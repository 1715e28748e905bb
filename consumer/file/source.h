// `lorry run`'s jobs: the lines of a file or of standard input, or the rows of a table (table_rows.h). Passes over what an earlier run
// has done, refuses a custom_id that was there before. Partition 0 of a topic named after the file; a record's offset is its line, from 0.
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
    RecordFormat format = RecordFormat::lines;
    std::size_t record_bytes_max = 64 << 20;  // what is longer is cut, and so refused
    const Table* table = nullptr;             // rows rather than jobs; outlives the source
    RecordSet done;                           // records to pass over
    std::optional<RecordSet> chosen;          // of all others, only these are delivered
    std::optional<std::int64_t> total;        // records that are there, for backlog()
};

// Rows that have nothing in a column that the template uses.
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
    // Of what was delivered so far, and not refused.
    const EmptyCells& empty_cells() const { return empty_cells_; }

private:
    std::optional<Delivery> delivery_of(FileRecord record);

    FileSourceOptions options_;
    FileReader reader_;
    TextSet ids_;
    EmptyCells empty_cells_;
    std::int64_t read_ = 0;  // records
};

// `count` records spread evenly over the file's `total`, of those that are not blank; always the same ones. For --sample.
RecordSet spread_sample(const std::filesystem::path& file, RecordFormat format, std::int64_t count, std::int64_t total);

}  // namespace lorry::consumer
