// The part of cuBLASLt's C interface that Lorry calls, declared here so that building does not need a copy of a library of 400 MB. Names,
// values and sizes are those of cublasLt.h, cublas_api.h and library_types.h (cuBLAS 13.1; docs.nvidia.com/cuda/cublas, "Using the cuBLASLt
// API"). Filled by library.cpp, called only by cublaslt.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/runtime.h"

namespace lorry::kernels::cuda::lt {

enum class Status : int { success = 0, invalid_value = 7, not_supported = 15 };  // cublasStatus_t; any other is a failure too
enum class Type : int { float32 = 0, bfloat16 = 14, e4m3 = 28 };                 // cudaDataType: CUDA_R_32F, _16BF, _8F_E4M3
enum class Compute : int { float32 = 68 };                                       // cublasComputeType_t: CUBLAS_COMPUTE_32F
enum class Operation : std::int32_t { plain = 0, transposed = 1 };               // cublasOperation_t

enum class MatmulAttribute : int {  // cublasLtMatmulDescAttributes_t
    transpose_a = 3,                // Operation
    scale_a = 17,                   // const void*, on the device; also scale_b
    scale_b = 18,
    scale_mode_a = 31,  // ScaleMode; also scale_mode_b; since 12.8
    scale_mode_b = 32,
};
// cublasLtMatmulMatrixScale_t. outer_vector: one float32 per column of op(a)' or of b, multiplied after the sum; since 12.9, for e4m3.
enum class ScaleMode : std::int32_t { outer_vector = 3 };
enum class PreferenceAttribute : int {  // cublasLtMatmulPreferenceAttributes_t
    workspace_bytes_max = 1,            // std::uint64_t
    reduction_schemes = 3,              // std::uint32_t, bits of ReductionScheme
    alignment_a = 5,                    // std::uint32_t, bytes; also b, c and d
    alignment_b = 6,
    alignment_c = 7,
    alignment_d = 8,
};
// How the parts of a split sum are added: compute_type in float32, one after another, in a separate step; in_place in order of arrival.
enum class ReductionScheme : std::uint32_t { in_place = 1, compute_type = 2, output_type = 4 };
enum class AlgorithmAttribute : int { id = 0, tile = 1, split_k = 2, reduction = 3, stages = 6 };  // of 4 bytes each

// cublasLtMatmulAlgo_t: "can be trivially serialized and later restored for use with the same version of cuBLAS".
struct Algorithm {
    std::array<std::uint64_t, 8> data{};
};
struct Heuristic {  // cublasLtMatmulHeuristicResult_t
    Algorithm algorithm;
    std::size_t workspace_bytes = 0;
    Status state = Status::success;
    float waves = 0.0F;
    std::array<int, 4> reserved{};
};

using Handle = struct LtContext*;
using Layout = struct LtLayout*;  // a matrix stored column by column
using Matmul = struct LtMatmulDescriptor*;
using Preference = struct LtPreference*;

// The functions, named without "cublasLt".
struct Functions {
    std::size_t (*get_version)() = nullptr;  // 10000 major + 100 minor + patch
    const char* (*get_status_name)(Status) = nullptr;
    Status (*create)(Handle*) = nullptr;
    Status (*destroy)(Handle) = nullptr;
    Status (*matrix_layout_create)(Layout*, Type, std::uint64_t rows, std::uint64_t columns, std::int64_t stride) = nullptr;
    Status (*matrix_layout_destroy)(Layout) = nullptr;
    Status (*matmul_desc_create)(Matmul*, Compute, Type scale) = nullptr;
    Status (*matmul_desc_destroy)(Matmul) = nullptr;
    Status (*matmul_desc_set_attribute)(Matmul, MatmulAttribute, const void* value, std::size_t bytes) = nullptr;
    Status (*matmul_preference_create)(Preference*) = nullptr;
    Status (*matmul_preference_destroy)(Preference) = nullptr;
    Status (*matmul_preference_set_attribute)(Preference, PreferenceAttribute, const void* value, std::size_t bytes) = nullptr;
    Status (*matmul_algo_get_heuristic)(Handle, Matmul, Layout a, Layout b, Layout c, Layout d, Preference, int wanted, Heuristic* results,
                                        int* found) = nullptr;
    Status (*matmul_algo_check)(Handle, Matmul, Layout a, Layout b, Layout c, Layout d, const Algorithm*, Heuristic* result) = nullptr;
    Status (*matmul_algo_config_get_attribute)(const Algorithm*, AlgorithmAttribute, void* value, std::size_t bytes,
                                               std::size_t* written) = nullptr;
    // d = alpha op(a) op(b) + beta c; alpha and beta are floats on the host.
    Status (*matmul)(Handle, Matmul, const void* alpha, const void* a, Layout, const void* b, Layout, const void* beta, const void* c,
                     Layout, void* d, Layout, const Algorithm*, void* workspace, std::size_t workspace_bytes, cudaStream_t) = nullptr;
};

}  // namespace lorry::kernels::cuda::lt
