// Reads the rows of Parquet files as lines of JSON, and writes Parquet files from such lines. Used by consumer/file. One thread per object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/check.h"

struct lorry_parquet_reader;
struct lorry_parquet_writer;

namespace lorry::engine {

struct ParquetFacts {
    std::vector<std::string> columns;  // the names, in the file's order
    std::int64_t rows = 0;
};

// Errors say what is wrong with the file, and do not name it.
class ParquetReader {
public:
    // columns: those to read; nullopt: all. Fails when the file is damaged, or such a column has a type that is not read.
    static Expected<ParquetReader, std::string> open(const std::filesystem::path& file,
                                                     const std::optional<std::vector<std::string>>& columns);

    Expected<ParquetFacts, std::string> facts() const;
    // The next rows, each a JSON object with a line end; empty at the end. Holds one page of each column in memory.
    Expected<std::string, std::string> next();

private:
    struct Free {
        void operator()(lorry_parquet_reader* handle) const;
    };
    explicit ParquetReader(lorry_parquet_reader* handle) : handle_(handle) {}

    std::unique_ptr<lorry_parquet_reader, Free> handle_;
};

// Reads each page of all columns, which takes the memory of one. Fails when the file is damaged or a page is too large: a ParquetWriter
// that copies the file's columns would find that only at the end.
Expected<void, std::string> check_parquet(const std::filesystem::path& file);

// integer: 64 bits; all of a column become numbers if one does not fit.
enum class ParquetKind : std::uint8_t { text, boolean, integer, number, vector, entities };

struct ParquetColumn {
    std::string name;
    ParquetKind kind;
};

struct ParquetDescription {
    std::optional<std::filesystem::path> input;  // a Parquet file whose columns are copied, with their types
    std::vector<std::string> columns;            // of the rows, as far as they are known
    std::vector<ParquetColumn> added;            // at the end
};

// Call order: observe() for each row in any order, add() for each in ascending order, finish(). A row is a JSON object of the columns that
// are not copied; their types follow from their values. Rows are held in memory up to 64 MiB. All throw std::runtime_error that names the
// file.
class ParquetWriter {
public:
    ParquetWriter(std::filesystem::path file, const ParquetDescription& description);

    void observe(std::string_view row);
    // number: of the row in the input, from 0.
    void add(std::int64_t number, std::string_view row);
    // The file is complete and on disk on return.
    void finish();

private:
    struct Free {
        void operator()(lorry_parquet_writer* handle) const;
    };

    std::filesystem::path file_;
    std::unique_ptr<lorry_parquet_writer, Free> handle_;
};

}  // namespace lorry::engine
