// How a block writes one row of what a matmul reads, in any format. For .cu files whose ops do.
#pragma once

#include "kernels/cuda/device.h"

namespace lorry::kernels::cuda {

constexpr int row_threads_max = 256;

// In the block's shared memory.
struct RowScratch {
    std::uint32_t largest[row_threads_max / warp_size];
};

// Called by all threads of a block: element i of the row is value(i), which may be called twice and by any thread.
template <class T, class Value>
__device__ void store_row(T* row, int columns, RowScratch&, Value value) {
    for (int i = thread_in_block(); i < columns; i += block_threads()) store(row + i, value(i));
}
template <class Value>
__device__ void store_row(Fp8* row, int columns, RowScratch& scratch, Value value) {
    std::uint32_t largest = 0;
    for (int i = thread_in_block(); i < columns; i += block_threads()) largest = larger(largest, magnitude_bits(value(i)));
    const float scale = fp8_scale(block_largest(largest, scratch.largest));
    const float inverse = 1.0F / scale;
    for (int i = thread_in_block(); i < columns; i += block_threads()) row[i] = to_fp8(value(i) * inverse);
    if (thread_in_block() == 0) *scale_of(row, columns) = scale;
}

}  // namespace lorry::kernels::cuda
