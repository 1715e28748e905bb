// Hands out the reader's lines piece by piece.
#include "consumer/file/parquet_lines.h"

#include <algorithm>

#include "consumer/file/error.h"

namespace lorry::consumer {
namespace {

engine::ParquetReader opened(const std::filesystem::path& file, const std::optional<std::vector<std::string>>& columns) {
    auto reader = engine::ParquetReader::open(file, columns);
    if (!reader) throw InputError(file.string() + ": " + reader.error());
    return std::move(*reader);
}

}  // namespace

engine::ParquetFacts parquet_facts(const std::filesystem::path& file) {
    auto facts = opened(file, std::vector<std::string>()).facts();
    if (!facts) throw InputError(file.string() + ": " + facts.error());
    return std::move(*facts);
}

void check_parquet(const std::filesystem::path& file) {
    if (auto read = engine::check_parquet(file); !read) throw InputError(file.string() + ": " + read.error());
}

ParquetLines::ParquetLines(const std::filesystem::path& file, const std::optional<std::vector<std::string>>& columns)
    : ByteSource(file.string()), reader_(opened(file, columns)) {}

std::optional<std::size_t> ParquetLines::read(std::span<char> out, std::chrono::milliseconds) {
    if (taken_ == lines_.size()) {
        auto lines = reader_.next();
        if (!lines) throw InputError(name() + ": " + lines.error());
        lines_ = std::move(*lines);
        taken_ = 0;
    }
    const std::size_t count = std::min(out.size(), lines_.size() - taken_);
    std::copy_n(lines_.begin() + static_cast<std::ptrdiff_t>(taken_), count, out.begin());
    taken_ += count;
    return count;
}

}  // namespace lorry::consumer
