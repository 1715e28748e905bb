// One row at a time: a copy of the whole weight in float32 would take gigabytes in large models.
#include "engine/model/merged_weight.h"

#include <cmath>

#include "kernels/checkpoint_weights.h"

namespace lorry::engine {

void for_rows(const MergedWeight& merged, const std::function<void(std::size_t row, std::span<float> values)>& visit) {
    const std::vector<float> a = to_float(merged.a);
    const std::vector<float> b = to_float(merged.b);
    const auto rank = static_cast<std::size_t>(merged.a.shape[0]);
    const auto columns = static_cast<std::size_t>(merged.a.shape[1]);
    const auto rows = static_cast<std::size_t>(merged.b.shape[0]);
    CHECK(merged.weight != nullptr || (merged.codes != nullptr && !merged.transposed), "a weight is a tensor of numbers or in codes");
    const std::vector<float> stored = merged.transposed ? to_float(*merged.weight) : std::vector<float>();
    std::vector<float> values(columns);
    for (std::size_t row = 0; row < rows; ++row) {
        if (merged.weight == nullptr) {
            for (std::size_t column = 0; column < columns; ++column)
                values[column] =
                    kernels::decoded(*merged.codes, merged.a.shape[1], static_cast<std::int64_t>(row), static_cast<std::int64_t>(column));
        } else if (merged.transposed) {
            for (std::size_t column = 0; column < columns; ++column) values[column] = stored[column * rows + row];
        } else {
            values = row_of(*merged.weight, static_cast<std::int64_t>(row));
        }
        for (std::size_t k = 0; k < rank; ++k) {
            const float factor = merged.scale * b[row * rank + k];
            for (std::size_t column = 0; column < columns; ++column) values[column] += factor * a[k * columns + column];
        }
        visit(row, values);
    }
}

float norm_of(std::span<const float> values) {
    double squares = 0.0;
    for (const float value : values) squares += static_cast<double>(value) * value;
    return static_cast<float>(std::sqrt(squares));
}

std::vector<float> output_scales(const MergedWeight& merged, const Tensor& magnitude) {
    std::vector<float> scales = to_float(magnitude);
    for_rows(merged, [&](std::size_t row, std::span<float> values) { scales[row] /= norm_of(values); });
    return scales;
}

}  // namespace lorry::engine
