// Views of memory on a backend's device: what ops read and write. A view owns nothing. Used by kernels/backend.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "schema/check.h"

namespace lorry::kernels {

// How an element is stored.
// int8_rows: the input of int8 matmuls. A row has an int8 for each element and one scale (the backend decides where), in memory that is
// counted in elements of 4 bytes: see stride_least().
// fp8_rows: an e4m3 for each element, in the memory of a row of float32. The scales of all rows are in one vector (Matrix::row_scales), as
// libraries read them.
enum class Format : std::uint8_t { float32, float16, bfloat16, int8_rows, fp8_rows };

constexpr bool has_row_scales(Format format) { return format == Format::int8_rows || format == Format::fp8_rows; }
// The distance between elements; for rows with scales, an element's share of its row's memory.
constexpr std::size_t bytes_of(Format format) { return format == Format::float32 || has_row_scales(format) ? 4 : 2; }
constexpr const char* name_of(Format format) {
    switch (format) {
        case Format::float32: return "float32";
        case Format::float16: return "float16";
        case Format::bfloat16: return "bfloat16";
        case Format::int8_rows: return "int8_rows";
        case Format::fp8_rows: return "fp8_rows";
    }
    return "";
}

// The fewest elements from one row to the next.
constexpr std::int64_t stride_least(Format format, std::int64_t columns) {
    return format == Format::int8_rows ? (columns + 3) / 4 + 1 : columns;
}

// [rows, columns] elements, row-major, row r starting at data + r * stride elements.
struct Matrix {
    void* data = nullptr;
    Format format = Format::float32;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t stride = 0;
    // Rows of unused memory after the last one: an op that computes whole blocks of rows may overwrite them.
    std::int64_t spare_rows = 0;
    // [rows + spare_rows]: fp8_rows: each row's scale; null for other formats.
    float* row_scales = nullptr;

    // Rows [begin, begin + count) of this matrix.
    Matrix slice_rows(std::int64_t begin, std::int64_t count) const {
        CHECK(begin >= 0 && count >= 0 && begin + count <= rows, "a slice of rows is inside its matrix");
        Matrix part = *this;
        part.data = static_cast<std::byte*>(data) + static_cast<std::size_t>(begin * stride) * bytes_of(format);
        part.rows = count;
        if (row_scales != nullptr) part.row_scales = row_scales + begin;
        if (begin + count < rows) part.spare_rows = 0;
        return part;
    }
    // Columns [begin, begin + count) of all rows.
    Matrix slice_columns(std::int64_t begin, std::int64_t count) const {
        CHECK(begin >= 0 && count >= 0 && begin + count <= columns, "a slice of columns is inside its matrix");
        CHECK(!has_row_scales(format), "rows with a scale cannot be cut by columns");
        Matrix part = *this;
        part.data = static_cast<std::byte*>(data) + static_cast<std::size_t>(begin) * bytes_of(format);
        part.columns = count;
        return part;
    }
};

// [size] float32 on the device; empty: no bias, no norm weight.
struct Vector {
    const float* data = nullptr;
    std::int64_t size = 0;
    bool empty() const { return size == 0; }
};

}  // namespace lorry::kernels
