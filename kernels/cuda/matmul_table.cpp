// The table, and how it is read; see matmul_table.h.
#include "kernels/cuda/matmul_table.h"

#include <xxhash.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "kernels/cuda/shapes.h"
#include "schema/check.h"

namespace lorry::kernels::cuda {

namespace {

// As `lorry bench tune --device cuda` prints them. No chip has been measured yet.
constexpr std::initializer_list<MatmulRow> measured = {};

std::string text_of(const MatmulRow& row) {
    return fmt::format("{} {} {} {} {:x};", name_of(row.shape.inputs), row.shape.out_features, row.shape.in_features, row.range.rows_max,
                       fmt::join(row.range.algorithm, ","));
}

}  // namespace

std::span<const MatmulRow> committed_rows() { return {measured.begin(), measured.size()}; }

std::optional<MatmulTable> table_of(std::span<const MatmulRow> rows, const MatmulChip& chip, std::size_t library) {
    std::map<MatmulShape, std::vector<MatmulRange>> ranges;
    std::string text;
    for (const MatmulRow& row : rows) {
        if (row.chip != chip || row.library != library) continue;
        ranges[row.shape].push_back(row.range);
        text += text_of(row);
    }
    if (ranges.empty()) return std::nullopt;
    std::string fingerprint = fmt::format("cublaslt-{}-{:016x}", library, XXH3_64bits(text.data(), text.size()));
    return MatmulTable{.ranges_of =
                           [ranges = std::move(ranges)](const MatmulShape& shape) {
                               const auto found = ranges.find(shape);
                               return found == ranges.end() ? std::vector<MatmulRange>{} : found->second;
                           },
                       .fingerprint = std::move(fingerprint)};
}

const MatmulRange& range_of(std::span<const MatmulRange> ranges, std::int64_t rows) {
    const auto found = std::ranges::find_if(ranges, [&](const MatmulRange& range) { return rows <= range.rows_max; });
    CHECK(found != ranges.end(), "a shape's ranges reach matmul_rows_max");
    return *found;
}

std::optional<std::string> fp8_obstacle(const MatmulChip& chip, std::size_t library) {
    constexpr std::size_t library_least = 120900;
    if (chip.capability != 90) return "cuBLASLt has scales for each row of fp8 on compute capability 9.0 only";
    if (library >= library_least) return std::nullopt;
    return fmt::format("cuBLASLt {} has no scales for each row of fp8: install {} or later", version_text(library),
                       version_text(library_least));
}

std::optional<std::string> fault_of(std::span<const MatmulRow> rows) {
    std::set<std::tuple<int, int, std::size_t, MatmulShape>> done;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const MatmulRow& row = rows[i];
        const std::string name = fmt::format("compute capability {}, {} processors, {} x {}", row.chip.capability, row.chip.processors,
                                             row.shape.out_features, row.shape.in_features);
        const auto key = std::tuple(row.chip.capability, row.chip.processors, row.library, row.shape);
        const auto is_same = [&](const MatmulRow& other) {
            return std::tuple(other.chip.capability, other.chip.processors, other.library, other.shape) == key;
        };
        const bool begins = i == 0 || !is_same(rows[i - 1]);
        const bool ends = i + 1 == rows.size() || !is_same(rows[i + 1]);
        if (begins && !done.insert(key).second) return name + " is there twice";
        const std::int64_t multiple = features_multiple(row.shape.inputs);
        if (row.shape.out_features % multiple != 0 || row.shape.in_features % multiple != 0)
            return fmt::format("{} has features that are no multiples of {}", name, multiple);
        const auto obstacle = row.shape.inputs == Format::fp8_rows ? fp8_obstacle(row.chip, row.library) : std::nullopt;
        if (obstacle) return fmt::format("{} is fp8, but {}", name, *obstacle);
        if (!begins && row.range.rows_max <= rows[i - 1].range.rows_max) return name + " has ranges that do not ascend";
        if (matmul_bucket(row.range.rows_max) != row.range.rows_max) return name + " has a range that ends within a bucket";
        if (ends && row.range.rows_max != matmul_rows_max)
            return fmt::format("{} ends at {} rows, not at {}", name, row.range.rows_max, matmul_rows_max);
    }
    return std::nullopt;
}

std::string version_text(std::size_t library) { return fmt::format("{}.{}.{}", library / 10000, library / 100 % 100, library % 100); }

}  // namespace lorry::kernels::cuda
