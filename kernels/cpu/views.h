// The parts of a matrix or a vector that kernels take. Used by the CPU's launchers, whose matrices kernels/contract.cpp has checked.
#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/kernels.h"

namespace lorry::kernels::cpu {

// Of a float32 matrix.
inline float* floats(const Matrix& matrix) { return static_cast<float*>(matrix.data); }
inline const float* floats(const Vector& vector) { return vector.empty() ? nullptr : vector.data; }

inline std::int64_t stride_bytes(const Matrix& matrix) { return matrix.stride * static_cast<std::int64_t>(bytes_of(matrix.format)); }

inline std::byte* row_of(const Matrix& matrix, std::int64_t row) {
    return static_cast<std::byte*>(matrix.data) + row * stride_bytes(matrix);
}

inline constexpr std::int64_t cache_line_bytes = 64;
// The cache lines that hold this many bytes.
constexpr std::int64_t cache_lines_of(std::int64_t bytes) { return (bytes + cache_line_bytes - 1) / cache_line_bytes; }

inline Activation kind_of(ActivationKind kind) {
    switch (kind) {
        case ActivationKind::silu: return Activation::silu;
        case ActivationKind::gelu: return Activation::gelu;
        case ActivationKind::gelu_tanh: return Activation::gelu_tanh;
        case ActivationKind::relu: return Activation::relu;
        case ActivationKind::tanh: return Activation::tanh;
    }
    return Activation::relu;
}

}  // namespace lorry::kernels::cpu
