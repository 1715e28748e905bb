// Which algorithm of cuBLASLt multiplies which shape on which chip: measured rows, committed or in a file, so that answers do not change
// between starts. Used by library_matmul.cpp; tuner.cpp finds the rows. Pure, except for read_matmul_rows().
//
// A row is a line of text: chip, version of the library, shape, range, and words of the algorithm without trailing zeros; a comment for
// people follows '#'.
//     90 132 130100 bfloat16 6144 4096 64 0x42 0x0 0x7  # an example that was not measured: chip's name, algorithm 66, tile 393
//
// All ranges of a shape give the same bits; `lorry bench tune --device cuda` accepts no others. An algorithm is the library's own eight
// words, which are only valid for one version of it, so a row is only valid for one version.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tensor.h"
#include "schema/check.h"

namespace lorry::kernels::cuda {

// y = W x for rows of this format: bfloat16 or fp8_rows.
struct MatmulShape {
    Format inputs = Format::bfloat16;
    std::int64_t out_features = 0;
    std::int64_t in_features = 0;
    auto operator<=>(const MatmulShape&) const = default;
};

using MatmulAlgorithm = std::array<std::uint64_t, 8>;
struct MatmulRange {
    std::int64_t rows_max = 0;  // of a bucket (shapes.h); starts after the range before it
    MatmulAlgorithm algorithm{};
    bool operator==(const MatmulRange&) const = default;
};

struct MatmulChip {
    int capability = 0;  // 90: compute capability 9.0
    int processors = 0;
    bool operator==(const MatmulChip&) const = default;
};
struct MatmulRow {
    MatmulChip chip;
    std::size_t library = 0;  // 130100: cuBLASLt 13.1.0
    MatmulShape shape;
    MatmulRange range;
    bool operator==(const MatmulRow&) const = default;
};

// Rows, with all rows of a shape next to each other by ascending rows_max.
struct MatmulRows {
    std::vector<MatmulRow> rows;
    std::string from = "kernels/cuda/cublaslt/matmul_table.cpp";  // for people
};

// The rows that are valid on one machine.
struct MatmulTable {
    std::function<std::vector<MatmulRange>(const MatmulShape& shape)> ranges_of;  // ascending; empty: our own kernel multiplies
    std::string fingerprint;                                                      // of version and rows: "cublaslt-130100-…"
};

// The rows that are built into the program.
MatmulRows committed_rows();
// Throws std::runtime_error naming file and line.
MatmulRows read_matmul_rows(const std::filesystem::path& file);

// A line without its comment.
std::string text_of(const MatmulRow& row);
// Parses a line. The error says what is wrong with it; nullopt: it has no row.
Expected<std::optional<MatmulRow>, std::string> parse_matmul_row(std::string_view line);
// Parses all lines. The error names the line, also for errors of fault_of().
Expected<std::vector<MatmulRow>, std::string> parse_matmul_rows(std::string_view text);

// The rows of this machine; nullopt if there are none.
std::optional<MatmulTable> table_of(std::span<const MatmulRow> rows, const MatmulChip& chip, std::size_t library);

// The range that contains `rows`, which is at most matmul_rows_max.
const MatmulRange& range_of(std::span<const MatmulRange> ranges, std::int64_t rows);

// The features of a shape must be multiples of this, so that each row starts at a multiple of 16 bytes.
constexpr std::int64_t features_multiple(Format inputs) { return inputs == Format::fp8_rows ? 16 : 8; }
// Why this version does not multiply fp8 with a scale per row and output on this chip, for people; nullopt: it does.
std::optional<std::string> fp8_obstacle(const MatmulChip& chip, std::size_t library);

// What is wrong with the table: a duplicate shape, ranges that do not ascend to matmul_rows_max, a range that ends within a bucket,
// features that are not multiples, fp8 despite an obstacle. nullopt: nothing.
struct MatmulFault {
    std::size_t row = 0;
    std::string what;  // for people
};
std::optional<MatmulFault> fault_of(std::span<const MatmulRow> rows);

std::string version_text(std::size_t library);  // "13.1.0"

}  // namespace lorry::kernels::cuda
