// The built-in table and the parser of table rows; see matmul_table.h.
#include "kernels/cuda/cublaslt/matmul_table.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/cuda/shapes.h"
#include "schema/check.h"

namespace lorry::kernels::cuda {

namespace {

// Rows as `lorry bench tune --device cuda` prints them. No chip has been measured yet.
constexpr std::string_view measured = R"()";

constexpr const char* columns = "CAPABILITY PROCESSORS LIBRARY bfloat16|fp8_rows OUTPUTS INPUTS ROWS_MAX WORDS";

// The words of a line, up to '#'.
std::vector<std::string_view> words_of(std::string_view line) {
    constexpr std::string_view blanks = " \t\r";
    std::vector<std::string_view> words;
    line = line.substr(0, line.find('#'));
    for (std::size_t begin = line.find_first_not_of(blanks); begin != line.npos; begin = line.find_first_not_of(blanks, begin)) {
        const std::size_t end = std::min(line.find_first_of(blanks, begin), line.size());
        words.push_back(line.substr(begin, end - begin));
        begin = end;
    }
    return words;
}

// The number that makes up the whole word, otherwise nullopt.
template <class Number>
std::optional<Number> number_of(std::string_view word, int base = 10) {
    Number number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number, base);
    if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
    return number;
}

std::optional<std::uint64_t> hexadecimal(std::string_view word) {
    return word.starts_with("0x") ? number_of<std::uint64_t>(word.substr(2), 16) : std::nullopt;
}

std::optional<Format> inputs_of(std::string_view word) {
    for (const Format format : {Format::bfloat16, Format::fp8_rows}) {
        if (word == name_of(format)) return format;
    }
    return std::nullopt;
}

}  // namespace

std::string text_of(const MatmulRow& row) {
    const MatmulAlgorithm& words = row.range.algorithm;
    const auto* const end = std::find_if(words.rbegin(), words.rend() - 1, [](std::uint64_t word) { return word != 0; }).base();
    return fmt::format("{} {} {} {} {} {} {} {:#x}", row.chip.capability, row.chip.processors, row.library, name_of(row.shape.inputs),
                       row.shape.out_features, row.shape.in_features, row.range.rows_max, fmt::join(words.begin(), end, " "));
}

Expected<std::optional<MatmulRow>, std::string> parse_matmul_row(std::string_view line) {
    constexpr std::size_t places = 7;  // before the algorithm
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty()) return std::optional<MatmulRow>();
    MatmulRow row;
    if (words.size() <= places || words.size() > places + row.range.algorithm.size())
        return unexpected(
            fmt::format("{} words, where a row has {}, one to {} of these", words.size(), columns, row.range.algorithm.size()));
    const auto wrong = [&](std::size_t place) { return unexpected(fmt::format("'{}' in the place of one of {}", words[place], columns)); };
    const auto put = [&](std::size_t place, auto& number) {
        const auto value = number_of<std::remove_reference_t<decltype(number)>>(words[place]);
        number = value.value_or(0);
        return number > 0;
    };
    if (!put(0, row.chip.capability)) return wrong(0);
    if (!put(1, row.chip.processors)) return wrong(1);
    if (!put(2, row.library)) return wrong(2);
    const auto inputs = inputs_of(words[3]);
    if (!inputs) return wrong(3);
    row.shape.inputs = *inputs;
    if (!put(4, row.shape.out_features)) return wrong(4);
    if (!put(5, row.shape.in_features)) return wrong(5);
    if (!put(6, row.range.rows_max) || row.range.rows_max > matmul_rows_max) return wrong(6);
    for (std::size_t i = places; i < words.size(); ++i) {
        const auto word = hexadecimal(words[i]);
        if (!word) return wrong(i);
        row.range.algorithm[i - places] = *word;
    }
    return std::optional(row);
}

Expected<std::vector<MatmulRow>, std::string> parse_matmul_rows(std::string_view text) {
    std::vector<MatmulRow> rows;
    std::vector<std::size_t> lines;  // [rows]
    const auto at_line = [](std::size_t line, const std::string& what) { return unexpected(fmt::format("line {}: {}", line, what)); };
    for (std::size_t line = 1; !text.empty(); ++line) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const auto row = parse_matmul_row(text.substr(0, end));
        if (!row) return at_line(line, row.error());
        if (*row) {
            rows.push_back(**row);
            lines.push_back(line);
        }
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (const auto fault = fault_of(rows)) return at_line(lines[fault->row], fault->what);
    return rows;
}

MatmulRows committed_rows() {
    auto rows = parse_matmul_rows(measured);
    CHECK(rows.has_value(), "the committed rows are read by a test");
    return {.rows = *std::move(rows)};
}

MatmulRows read_matmul_rows(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    if (!stream) throw std::runtime_error(fmt::format("{}: cannot be read", file.string()));
    auto rows = parse_matmul_rows(text);
    if (!rows)
        throw std::runtime_error(
            fmt::format("{}: {}; `lorry bench tune --device cuda --table FILE` writes one", file.string(), rows.error()));
    return {*std::move(rows), file.string()};
}

std::optional<MatmulTable> table_of(std::span<const MatmulRow> rows, const MatmulChip& chip, std::size_t library) {
    std::map<MatmulShape, std::vector<MatmulRange>> ranges;
    std::string text;
    for (const MatmulRow& row : rows) {
        if (row.chip != chip || row.library != library) continue;
        ranges[row.shape].push_back(row.range);
        text += text_of(row) + "\n";
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

std::optional<MatmulFault> fault_of(std::span<const MatmulRow> rows) {
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
        const auto fault = [&](const std::string& what) { return MatmulFault{i, name + what}; };
        if (begins && !done.insert(key).second) return fault(" is listed twice");
        const std::int64_t multiple = features_multiple(row.shape.inputs);
        if (row.shape.out_features % multiple != 0 || row.shape.in_features % multiple != 0)
            return fault(fmt::format(" has features that are not multiples of {}", multiple));
        const auto obstacle = row.shape.inputs == Format::fp8_rows ? fp8_obstacle(row.chip, row.library) : std::nullopt;
        if (obstacle) return fault(" is fp8, but " + *obstacle);
        if (!begins && row.range.rows_max <= rows[i - 1].range.rows_max) return fault(" has ranges that do not ascend");
        if (matmul_bucket(row.range.rows_max) != row.range.rows_max) return fault(" has a range that ends within a bucket");
        if (ends && row.range.rows_max != matmul_rows_max)
            return fault(fmt::format(" ends at {} rows, not at {}", row.range.rows_max, matmul_rows_max));
    }
    return std::nullopt;
}

std::string version_text(std::size_t library) { return fmt::format("{}.{}.{}", library / 10000, library / 100 % 100, library % 100); }

}  // namespace lorry::kernels::cuda
