// Implements cuBLASLt with descriptors that are plain structs. Wrong arguments return the status that cublasLt.h documents. See cublaslt.h.
#include "kernels/cuda/emulation/cublaslt.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/emulation/stream.h"

namespace lorry::kernels::cuda {

namespace lt {

struct LtContext {};
struct LtLayout {
    Type type;
    std::uint64_t rows;
    std::uint64_t columns;
    std::int64_t stride;
};
struct LtMatmulDescriptor {
    Compute compute;
    Type scale;
    Operation transpose_a = Operation::plain;
    std::int32_t scale_mode_a = 0;
    std::int32_t scale_mode_b = 0;
    const void* scale_a = nullptr;
    const void* scale_b = nullptr;
};
struct LtPreference {
    std::uint64_t workspace_bytes = 0;
    std::uint32_t reduction_schemes = 7;
    std::uint32_t alignment_least = 256;
};

}  // namespace lt

namespace emulation {

namespace {

using lt::Algorithm;
using lt::Heuristic;
using lt::Status;
using Kind = CublasLtAlgorithm;

std::atomic<std::uint64_t> matmuls{0};

constexpr std::uint64_t few_rows = 64;
constexpr std::uint64_t many_rows = 128;
constexpr std::uint32_t alignment = 16;

bool is_known(const Algorithm& algorithm) {
    return algorithm.data[0] >= static_cast<std::uint64_t>(Kind::split_by_rows) &&
           algorithm.data[0] <= static_cast<std::uint64_t>(Kind::in_place);
}
Kind kind_of(const Algorithm& algorithm) { return static_cast<Kind>(algorithm.data[0]); }

// Memory for the parts of split sums, except one that is kept in the output.
std::size_t workspace_bytes_of(Kind kind, const lt::LtLayout& out) {
    return kind == Kind::halves ? out.rows * out.columns * sizeof(float) : 0;
}

double microseconds_of(Kind kind, std::uint64_t rows) {
    if (kind == Kind::halves || kind == Kind::starts_from_out) return 9.0;
    if (kind == Kind::plain) return 5.0;
    if (kind == Kind::for_many_rows) return rows < many_rows ? 8.0 : 3.0;
    return 2.0;
}

bool is_fp8(lt::Layout layout) { return layout->type == lt::Type::e4m3; }

// Checks that a, b and d are what this library multiplies: a' b of bfloat16, or of e4m3 with a scale for each column of a and b, into
// float32.
Status check(lt::Matmul matmul, lt::Layout a, lt::Layout b, lt::Layout c, lt::Layout d) {
    constexpr auto by_columns = static_cast<std::int32_t>(lt::ScaleMode::outer_vector);
    const std::int32_t scales = is_fp8(a) ? by_columns : 0;
    const bool is_supported = matmul->compute == lt::Compute::float32 && matmul->scale == lt::Type::float32 &&
                              matmul->transpose_a == lt::Operation::transposed && a->type == b->type &&
                              (is_fp8(a) || a->type == lt::Type::bfloat16) && c->type == lt::Type::float32 &&
                              d->type == lt::Type::float32 && matmul->scale_mode_a == scales && matmul->scale_mode_b == scales;
    if (!is_supported) return Status::not_supported;
    const bool is_cut = is_fp8(a) && (a->rows % alignment != 0 || a->columns % alignment != 0 || b->columns % alignment != 0);
    if (is_cut) return Status::not_supported;
    const bool fits = a->rows == b->rows && a->columns == d->rows && b->columns == d->columns && c->rows == d->rows &&
                      c->columns == d->columns && c->stride == d->stride;
    return fits ? Status::success : Status::invalid_value;
}

Status algo_check(lt::Handle handle, lt::Matmul matmul, lt::Layout a, lt::Layout b, lt::Layout c, lt::Layout d, const Algorithm* algorithm,
                  Heuristic* result) {
    if (handle == nullptr || !is_known(*algorithm)) return Status::invalid_value;
    if (const Status status = check(matmul, a, b, c, d); status != Status::success) return status;
    if (kind_of(*algorithm) == Kind::for_few_rows && d->columns > few_rows) return Status::not_supported;
    *result = {.algorithm = {}, .workspace_bytes = workspace_bytes_of(kind_of(*algorithm), *d)};
    return Status::success;
}

Status get_heuristic(lt::Handle handle, lt::Matmul matmul, lt::Layout a, lt::Layout b, lt::Layout c, lt::Layout d,
                     lt::Preference preference, int wanted, Heuristic* results, int* found) {
    if (handle == nullptr || wanted <= 0) return Status::invalid_value;
    if (preference->alignment_least < alignment) return Status::not_supported;
    *found = 0;
    for (auto id = static_cast<std::uint64_t>(Kind::split_by_rows); id <= static_cast<std::uint64_t>(Kind::in_place); ++id) {
        const Algorithm algorithm{.data = {id}};
        const bool is_ruled_out = kind_of(algorithm) == Kind::in_place &&
                                  (preference->reduction_schemes & static_cast<std::uint32_t>(lt::ReductionScheme::in_place)) == 0;
        Heuristic result;
        if (*found == wanted || is_ruled_out || algo_check(handle, matmul, a, b, c, d, &algorithm, &result) != Status::success) continue;
        if (result.workspace_bytes > preference->workspace_bytes) continue;
        result.algorithm = algorithm;
        results[(*found)++] = result;
    }
    return Status::success;
}

float rounded(float x) { return to_float(to_bfloat16(x)); }
float widened(Bfloat16 x) { return to_float(x); }
float widened(Fp8 x) { return float_of(x); }

// The sum over `features` products of one row and one output, started with `start`.
template <class T>
float sum_of(Kind kind, const T* in, const T* weight, std::int64_t features, std::uint64_t row, std::uint64_t rows, float start) {
    const auto chain = [&](std::int64_t begin, std::int64_t end, float sum) {
        for (std::int64_t k = begin; k < end; ++k) {
            sum = std::fmaf(widened(in[k]), widened(weight[k]), sum);
            if (kind == Kind::rounded) sum = rounded(sum);
        }
        return sum;
    };
    std::int64_t parts = 1;
    if (kind == Kind::halves) parts = 2;
    if (kind == Kind::split_by_rows) parts = 1 + static_cast<std::int64_t>(256 / std::max<std::uint64_t>(rows, 32));
    if (kind == Kind::backwards_at_odds && row % 2 == 1) {
        float sum = 0.0F;
        for (std::int64_t k = features; k-- > 0;) sum = std::fmaf(widened(in[k]), widened(weight[k]), sum);
        return sum;
    }
    float sum = chain(0, features / parts, kind == Kind::starts_from_out ? start : 0.0F);
    for (std::int64_t part = 1; part < parts; ++part) sum += chain(features * part / parts, features * (part + 1) / parts, 0.0F);
    return sum;
}

struct Product {
    Kind kind;
    lt::LtLayout weights;
    const void* weight;
    const float* weight_scales;  // null: none; the same for in_scales
    lt::LtLayout ins;
    const void* in;
    const float* in_scales;
    lt::LtLayout outs;
    float* out;
    bool accumulates;
};
template <class T>
void multiply_all(const Product& product) {
    const auto features = static_cast<std::int64_t>(product.weights.rows);
    for (std::uint64_t row = 0; row < product.outs.columns; ++row) {
        const T* const in = static_cast<const T*>(product.in) + static_cast<std::int64_t>(row) * product.ins.stride;
        float* const out = product.out + static_cast<std::int64_t>(row) * product.outs.stride;
        for (std::uint64_t i = 0; i < product.outs.rows; ++i) {
            const T* const weight = static_cast<const T*>(product.weight) + static_cast<std::int64_t>(i) * product.weights.stride;
            const float scale = product.in_scales == nullptr ? 1.0F : product.in_scales[row] * product.weight_scales[i];
            const float before = product.accumulates ? out[i] : 0.0F;
            const bool goes_on = product.kind == Kind::starts_from_out;
            const float sum = sum_of(product.kind, in, weight, features, row, product.outs.columns, goes_on ? before / scale : 0.0F);
            out[i] = goes_on ? sum * scale : before + sum * scale;
        }
    }
}

Status multiply(lt::Handle handle, lt::Matmul matmul, const void* alpha, const void* a, lt::Layout a_layout, const void* b,
                lt::Layout b_layout, const void* beta, const void* c, lt::Layout c_layout, void* d, lt::Layout d_layout,
                const Algorithm* algorithm, void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
    Heuristic needs;
    const Status status = algo_check(handle, matmul, a_layout, b_layout, c_layout, d_layout, algorithm, &needs);
    if (status != Status::success) return status;
    const std::size_t element = is_fp8(a_layout) ? sizeof(Fp8) : sizeof(Bfloat16);
    const auto begins_aligned = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % alignment == 0; };
    const auto is_aligned = [&](const void* data, std::int64_t stride, std::size_t element_bytes) {
        return begins_aligned(data) && static_cast<std::size_t>(stride) * element_bytes % alignment == 0;
    };
    const auto are_scales = [&](const void* data) { return data != nullptr && begins_aligned(data); };
    const bool is_callable = is_aligned(a, a_layout->stride, element) && is_aligned(b, b_layout->stride, element) &&
                             is_aligned(d, d_layout->stride, sizeof(float)) && c == d && workspace_bytes >= needs.workspace_bytes &&
                             (needs.workspace_bytes == 0 || workspace != nullptr) &&
                             (!is_fp8(a_layout) || (are_scales(matmul->scale_a) && are_scales(matmul->scale_b)));
    if (!is_callable || *static_cast<const float*>(alpha) != 1.0F) return Status::invalid_value;
    const Product product{.kind = kind_of(*algorithm),
                          .weights = *a_layout,
                          .weight = a,
                          .weight_scales = static_cast<const float*>(matmul->scale_a),
                          .ins = *b_layout,
                          .in = b,
                          .in_scales = static_cast<const float*>(matmul->scale_b),
                          .outs = *d_layout,
                          .out = static_cast<float*>(d),
                          .accumulates = *static_cast<const float*>(beta) != 0.0F};
    queue(stream, [product] {
        product.weights.type == lt::Type::e4m3 ? multiply_all<Fp8>(product) : multiply_all<Bfloat16>(product);
        pass(microseconds_of(product.kind, product.outs.columns));
    });
    ++matmuls;
    return Status::success;
}

template <class T>
Status set(T& to, const void* value, std::size_t bytes) {
    if (value == nullptr || bytes != sizeof(T)) return Status::invalid_value;
    std::memcpy(&to, value, bytes);
    return Status::success;
}

Status set_attribute(lt::Matmul matmul, lt::MatmulAttribute attribute, const void* value, std::size_t bytes) {
    switch (attribute) {
        case lt::MatmulAttribute::transpose_a: return set(matmul->transpose_a, value, bytes);
        case lt::MatmulAttribute::scale_a: return set(matmul->scale_a, value, bytes);
        case lt::MatmulAttribute::scale_b: return set(matmul->scale_b, value, bytes);
        case lt::MatmulAttribute::scale_mode_a: return set(matmul->scale_mode_a, value, bytes);
        case lt::MatmulAttribute::scale_mode_b: return set(matmul->scale_mode_b, value, bytes);
    }
    return Status::invalid_value;
}

Status set_preference(lt::Preference preference, lt::PreferenceAttribute attribute, const void* value, std::size_t bytes) {
    switch (attribute) {
        case lt::PreferenceAttribute::workspace_bytes_max: return set(preference->workspace_bytes, value, bytes);
        case lt::PreferenceAttribute::reduction_schemes: return set(preference->reduction_schemes, value, bytes);
        case lt::PreferenceAttribute::alignment_a:
        case lt::PreferenceAttribute::alignment_b:
        case lt::PreferenceAttribute::alignment_c:
        case lt::PreferenceAttribute::alignment_d: return set(preference->alignment_least, value, bytes);
    }
    return Status::invalid_value;
}

Status get_attribute(const Algorithm* algorithm, lt::AlgorithmAttribute attribute, void* value, std::size_t bytes, std::size_t* written) {
    std::int32_t answer = 0;
    if (attribute == lt::AlgorithmAttribute::id) answer = static_cast<std::int32_t>(algorithm->data[0]);
    if (attribute == lt::AlgorithmAttribute::split_k) answer = kind_of(*algorithm) == Kind::halves ? 2 : 1;
    if (bytes != sizeof(answer)) return Status::invalid_value;
    std::memcpy(value, &answer, bytes);
    *written = bytes;
    return Status::success;
}

template <class Descriptor>
Status destroy(Descriptor* descriptor) {
    delete descriptor;
    return Status::success;
}

}  // namespace

MatmulAlgorithm words_of(CublasLtAlgorithm algorithm) { return {static_cast<std::uint64_t>(algorithm)}; }

std::uint64_t cublaslt_matmuls() { return matmuls; }

lt::Functions cublaslt() {
    lt::Functions functions;
    functions.get_version = [] { return cublaslt_version; };
    functions.get_status_name = [](Status status) {
        return status == Status::not_supported ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_INVALID_VALUE";
    };
    functions.create = [](lt::Handle* handle) {
        *handle = new lt::LtContext;
        return Status::success;
    };
    functions.destroy = &destroy<lt::LtContext>;
    functions.matrix_layout_create = [](lt::Layout* layout, lt::Type type, std::uint64_t rows, std::uint64_t columns, std::int64_t stride) {
        if (rows == 0 || columns == 0 || stride < static_cast<std::int64_t>(rows)) return Status::invalid_value;
        *layout = new lt::LtLayout{type, rows, columns, stride};
        return Status::success;
    };
    functions.matrix_layout_destroy = &destroy<lt::LtLayout>;
    functions.matmul_desc_create = [](lt::Matmul* matmul, lt::Compute compute, lt::Type scale) {
        *matmul = new lt::LtMatmulDescriptor{compute, scale};
        return Status::success;
    };
    functions.matmul_desc_destroy = &destroy<lt::LtMatmulDescriptor>;
    functions.matmul_desc_set_attribute = &set_attribute;
    functions.matmul_preference_create = [](lt::Preference* preference) {
        *preference = new lt::LtPreference;
        return Status::success;
    };
    functions.matmul_preference_destroy = &destroy<lt::LtPreference>;
    functions.matmul_preference_set_attribute = &set_preference;
    functions.matmul_algo_get_heuristic = &get_heuristic;
    functions.matmul_algo_check = &algo_check;
    functions.matmul_algo_config_get_attribute = &get_attribute;
    functions.matmul = &multiply;
    return functions;
}

}  // namespace emulation

}  // namespace lorry::kernels::cuda
