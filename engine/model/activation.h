// Activations of one step, allocated once for the largest step. Used by model.cpp and readout.cpp.
#pragma once

#include <algorithm>
#include <memory>

#include "kernels/backend.h"

namespace lorry::engine {

// The rows, then one scale per row for formats that have scales.
class Activation {
public:
    Activation(kernels::Backend& backend, std::int64_t rows_max, std::int64_t columns)
        : backend_(backend), rows_max_(rows_max), columns_(columns) {
        using enum kernels::Format;
        std::size_t row_bytes = 0;
        for (const kernels::Format format : {float32, bfloat16, int8_rows, fp8_rows})
            row_bytes = std::max(row_bytes, static_cast<std::size_t>(backend.row_stride(format, columns)) * kernels::bytes_of(format));
        rows_bytes_ = static_cast<std::size_t>(rows_max) * row_bytes;
        buffer_ = backend.allocate(rows_bytes_ + static_cast<std::size_t>(rows_max) * sizeof(float));
    }

    // The first `rows` rows, in the format that the reading op needs.
    kernels::Matrix view(std::int64_t rows, kernels::Format format = kernels::Format::float32) const {
        return view_of(rows, columns_, format);
    }
    // The same with fewer columns.
    kernels::Matrix view_of(std::int64_t rows, std::int64_t columns, kernels::Format format = kernels::Format::float32) const {
        CHECK(rows <= rows_max_ && columns <= columns_, "activations are allocated for the largest step");
        return {.data = buffer_->data(),
                .format = format,
                .rows = rows,
                .columns = columns,
                .stride = backend_.row_stride(format, columns),
                .spare_rows = rows_max_ - rows,
                .row_scales = reinterpret_cast<float*>(static_cast<std::byte*>(buffer_->data()) + rows_bytes_)};
    }

private:
    const kernels::Backend& backend_;
    std::unique_ptr<kernels::Buffer> buffer_;
    std::int64_t rows_max_;
    std::int64_t columns_;
    std::size_t rows_bytes_ = 0;
};

}  // namespace lorry::engine
