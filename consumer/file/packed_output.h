// Outputs that are written at the end of a run: Parquet, and files compressed with gzip or zstd. Until then the run appends its rows to a
// file beside the output, OUT.rows, as to any output, with its journal, so that it can resume after a kill. pack_output() then writes the
// output, in the order of the input, with a journal of its own, and removes the rows. Called by `lorry run`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "consumer/file/journal.h"
#include "consumer/file/reader.h"
#include "engine/text/parquet.h"

namespace lorry::consumer {

enum class PackedFormat : std::uint8_t { gzip, zstd, parquet };

struct PackedOutput {
    std::filesystem::path file;
    PackedFormat format = PackedFormat::gzip;
    FileFormat rows;                       // of the file with the rows: CSV or lines
    engine::ParquetDescription parquet{};  // what the columns are
};

// The file with the rows of a run that goes on. Its journal is journal_of() it.
std::filesystem::path rows_of(const std::filesystem::path& output);

// Writes the output from its rows. Wherever it is killed, the old output or the whole new one is there, and the rows as long as it is the
// old one. Throws std::runtime_error for a bad disk or a damaged file.
void pack_output(const PackedOutput& output);
// Writes the rows of a complete output to a file of rows again, but those that are run again; returns how many these are. `identity` is
// that of the run that repeats them. Throws ResumeRefused when the output was changed.
std::int64_t unpack_good(const PackedOutput& output, Retried retried, const RunIdentity& identity);
// All files that a run may have beside the output until it ends.
std::vector<std::filesystem::path> files_beside(const std::filesystem::path& output);
// Removes them.
void remove_rows(const std::filesystem::path& output);

}  // namespace lorry::consumer
