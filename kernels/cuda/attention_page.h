// A page of keys or values in shared memory: how it is loaded, and how a warp passes it to the tensor cores. Included by attention.cu.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention.h"

namespace lorry::kernels::cuda {

template <class T>
constexpr int chunk = 16 / static_cast<int>(sizeof(T));  // elements that are copied at once
// A row is an odd number of chunks, so that ldmatrix finds consecutive rows in different banks.
template <class T, int head_dim>
constexpr int stride_of = (head_dim / chunk<T> | 1) * chunk<T>;
template <class T>
constexpr bool has_scales = std::is_same_v<T, Fp8>;

// For the page whose scores are being weighted, and for the one whose keys are being loaded.
template <class T>
struct PageScales {
    __device__ float key_scale(int, int) const { return 1.0F; }
    __device__ float value_scale(int, int, int) const { return 1.0F; }
};
template <>
struct PageScales<Fp8> {
    alignas(16) float keys[2][page];
    alignas(16) float values[page];

    __device__ float key_scale(int index, int token) const { return keys[index % 2][token]; }
    // Memory that was never written may hold anything, and zero times that may be NaN.
    __device__ float value_scale(int begin, int token, int written) const { return token < written - begin ? values[begin + token] : 0.0F; }
};

// Loads a page's keys or values: `written` tokens; the others become zeros.
template <int threads, int head_dim, class T, std::size_t stride>
__device__ void load_tokens(T (&to)[page][stride], const T* from, int written) {
    constexpr int chunks = head_dim / chunk<T>;
    if constexpr (threads % chunks == 0 && page * chunks % threads == 0) {
        // A thread's chunks are in one column, so that they differ by steps that the compiler knows.
        constexpr int rows = threads / chunks;
        const int first = thread_in_block() / chunks;
        const int d = thread_in_block() % chunks * chunk<T>;
        const T* const begin = from + first * head_dim + d;
#pragma unroll
        for (int row = 0; row < page; row += rows) copy_async(&to[first + row][d], begin + row * head_dim, first + row < written);
    } else {
#pragma unroll 4
        for (int i = thread_in_block(); i < page * chunks; i += threads) {
            const int token = i / chunks;
            const int d = i % chunks * chunk<T>;
            copy_async(&to[token][d], from + token * head_dim + d, token < written);
        }
    }
}
__device__ inline void load_scales(float (&to)[page], const float* from, int written) {
    const int token = thread_in_block() * 4;
    if (token < page) copy_async(&to[token], from + token, token < written);
}

// The dimension at a position of the tensor cores' operands and sums: of 16 dimensions widened from fp8, even ones precede odd ones.
template <class T>
__device__ constexpr int dim_at(int place) {
    return has_scales<T> ? place / 16 * 16 + place % 8 * 2 + place % 16 / 8 : place;
}

// Fragments of `keys`: for each 8 of the 32 tokens from `token` on, 16 dimensions from `dim` on.
template <std::size_t stride>
__device__ void load_keys(std::uint32_t (&b)[4][2], const Bfloat16 (&keys)[page][stride], int token, int dim) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        std::uint32_t r[4];
        load_matrices(r, &keys[token + half * 16 + lane() / 16 * 8 + lane() % 8][dim + lane() / 8 % 2 * 8]);
#pragma unroll
        for (int i = 0; i < 4; ++i) b[2 * half + i / 2][i % 2] = r[i];
    }
}
template <std::size_t stride>
__device__ void load_keys(std::uint32_t (&b)[4][2], const Fp8 (&keys)[page][stride], int token, int dim) {
    std::uint32_t r[4];
    load_matrices(r, &keys[token + lane()][dim]);
#pragma unroll
    for (int i = 0; i < 4; ++i) widen(r[i], b[i][0], b[i][1]);
}

// Fragments of `values`: for each 16 of the 32 tokens from `token` on, each 8 of the 16 dimensions from `dim` on.
template <std::size_t stride>
__device__ void load_values(std::uint32_t (&b)[2][2][2], const Bfloat16 (&values)[page][stride], int token, int dim) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        std::uint32_t r[4];
        load_matrices_transposed(r, &values[token + half * 16 + lane() % 16][dim + lane() / 16 * 8]);
#pragma unroll
        for (int i = 0; i < 4; ++i) b[half][i / 2][i % 2] = r[i];
    }
}
template <std::size_t stride>
__device__ void load_values(std::uint32_t (&b)[2][2][2], const Fp8 (&values)[page][stride], int token, int dim) {
    std::uint32_t r[4];
    load_matrices_transposed(r, &values[token + lane()][dim]);
#pragma unroll
    for (int i = 0; i < 4; ++i) widen(r[i], b[i / 2][0][i % 2], b[i / 2][1][i % 2]);
}

}  // namespace lorry::kernels::cuda
