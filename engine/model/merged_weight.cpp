// One row at a time: a copy of the whole weight in float32 would take gigabytes in large models.
#include "engine/model/merged_weight.h"

#include <cmath>

#include "kernels/checkpoint_weights.h"

namespace lorry::engine {

const Tensor& tensor_of(const Model& model, const std::string& name) {
    const Tensor* tensor = model.checkpoint().find(name, model.layout().prefix);
    CHECK(tensor != nullptr, "the model was loaded from this checkpoint");
    return *tensor;
}

const Tensor* base_weight_of(const Model& model, const std::string& path) {
    const ModelLayout& layout = model.layout();
    const bool is_tied = model.config().tied_head && layout.head() != nullptr && path == layout.head()->path;
    const Tensor* const weight = model.checkpoint().find((is_tied ? layout.tokens : path) + ".weight", layout.prefix);
    return weight != nullptr && weight->format ? weight : nullptr;
}

std::unique_ptr<CodedWeight> codes_of(const Model& model, const LinearModule& module) {
    const CodedSource source{.config = *model.config().quantized, .checkpoint = model.checkpoint(), .prefix = model.layout().prefix};
    return read_codes(source, *source.find(module.path, module.out_features, module.in_features));
}

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

namespace {

// A matrix in float32 with its sizes exchanged.
struct Transposed {
    explicit Transposed(const Tensor& from) : values(to_float(from)) {
        const std::vector<float> stored = values;
        const auto rows = static_cast<std::size_t>(from.shape[0]);
        const auto columns = static_cast<std::size_t>(from.shape[1]);
        for (std::size_t row = 0; row < rows; ++row) {
            for (std::size_t column = 0; column < columns; ++column) values[column * rows + row] = stored[row * columns + column];
        }
        tensor.format = kernels::Format::float32;
        tensor.shape = {from.shape[1], from.shape[0]};
        tensor.bytes = std::as_bytes(std::span(values));
    }
    std::vector<float> values;
    Tensor tensor;
};

}  // namespace

std::vector<float> column_scales(const Tensor& embedding, const Tensor& a, const Tensor& b, float scale, const Tensor& magnitude) {
    std::vector<float> scales = to_float(magnitude);
    std::vector<double> squares(scales.size());
    const Transposed by_token(a);
    const Transposed by_rank(b);
    for_rows({.weight = &embedding, .a = by_rank.tensor, .b = by_token.tensor, .scale = scale}, [&](std::size_t, std::span<float> values) {
        for (std::size_t i = 0; i < values.size(); ++i) squares[i] += static_cast<double>(values[i]) * values[i];
    });
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] /= static_cast<float>(std::sqrt(squares[i]));
    return scales;
}

std::vector<float> output_scales(const MergedWeight& merged, const Tensor& magnitude) {
    std::vector<float> scales = to_float(magnitude);
    for_rows(merged, [&](std::size_t row, std::span<float> values) { scales[row] /= norm_of(values); });
    return scales;
}

}  // namespace lorry::engine
