// The rows of a Parquet file as lines of JSON, in the memory of a page for each column. Used by reader.cpp, and by `lorry run` for the
// file's columns. One thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "consumer/file/input_bytes.h"
#include "engine/text/parquet.h"

namespace lorry::consumer {

// Throws InputError that names the file and says what is wrong with it.
engine::ParquetFacts parquet_facts(const std::filesystem::path& file);

// Reads each page of all columns, also of those that no row uses. Throws InputError as parquet_facts() does.
void check_parquet(const std::filesystem::path& file);

class ParquetLines final : public ByteSource {
public:
    // columns: those to read; nullopt: all. Throws InputError.
    ParquetLines(const std::filesystem::path& file, const std::optional<std::vector<std::string>>& columns);

    std::optional<std::size_t> read(std::span<char> out, std::chrono::milliseconds timeout) override;

private:
    engine::ParquetReader reader_;
    std::string lines_;  // those not yet taken begin at taken_
    std::size_t taken_ = 0;
};

}  // namespace lorry::consumer
