// What a kernel may use of the device, the only way to launch one, and the only header that knows whether nvcc or the host's compiler
// reads it: every .cu file includes this and nothing of CUDA's own. device_ptx.h holds the side for a GPU, emulation/device.h the one
// for the host, function by function; what is built of them for both stands below.
//
//   thread_in_block(), block_threads(), lane(), warp()   the running thread; blocks are one-dimensional, a multiple of 32 threads
//   block(), grid()                                      its block's place, and how many there are: .x .y .z
//   shared_memory<T>()                                   the block's shared memory as a T; the launch says how large it is
//   barrier(), warp_barrier()                            all threads of the block, or of the warp, come here before any goes on
//   shuffle_xor(x, mask), shuffle_from(x, from), ballot(b)    between the lanes of a full warp
//   multiply_add(d, a, b)                                mma.sync m16n8k16 of bfloat16 with float32 sums (PTX ISA 9.7.14.5.8's fragments)
//   load_matrices(r, row), ..._transposed(r, row)        ldmatrix x4: lane 8 m + i names row i of matrix m
//   copy_async(to, from, wanted)                         16 bytes, global to shared memory; zeros if not wanted: `from` is then not read
//   copy_async_commit(), copy_async_wait<groups>()       closes a group; waits until at most that many groups are in flight
//   atomic_add(to, x), atomic_or(to, x)                  on 32-bit words in global memory, by any threads; nothing is returned
//   pack(low, high), to_bfloat16(x), to_float(x)         float32 to bfloat16 rounds to nearest even
//
// Warp operations need all 32 lanes at the same place: guard what they are for, not the operation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/runtime.h"

namespace lorry::kernels::cuda {

struct Bfloat16 {
    std::uint16_t bits = 0;
};

constexpr int warp_size = 32;

struct Blocks {
    int x = 1;
    int y = 1;
    int z = 1;
};

// How many blocks of how many threads, and what each shares.
struct Launch {
    Blocks blocks;
    int threads = 0;
    std::size_t shared_bytes = 0;
    cudaStream_t stream = nullptr;
};

}  // namespace lorry::kernels::cuda

#if defined(__CUDACC__)
#include "kernels/cuda/device_ptx.h"
#else
#include "kernels/cuda/emulation/device.h"
#endif

namespace lorry::kernels::cuda {

__device__ inline int lane() { return thread_in_block() % warp_size; }
__device__ inline int warp() { return thread_in_block() / warp_size; }

// Sums, and the larger of two, over the lanes of a warp in an order that does not depend on the values.
template <class T>
__device__ T warp_sum(T x) {
    for (int distance = warp_size / 2; distance > 0; distance /= 2) x += shuffle_xor(x, distance);
    return x;
}
__device__ inline float larger(float a, float b) { return a > b ? a : b; }
template <class T>
__device__ T warp_largest(T x) {
    for (int distance = warp_size / 2; distance > 0; distance /= 2) x = larger(x, shuffle_xor(x, distance));
    return x;
}

// The sum over the block: `scratch` holds one T per warp in shared memory and may be used again after the next barrier.
template <class T>
__device__ T block_sum(T x, T* scratch) {
    x = warp_sum(x);
    if (lane() == 0) scratch[warp()] = x;
    barrier();
    T sum = scratch[0];
    for (int i = 1; i < block_threads() / warp_size; ++i) sum += scratch[i];
    barrier();
    return sum;
}

// Elements of a matrix in either format.
__device__ inline float load(const float* from) { return *from; }
__device__ inline float load(const Bfloat16* from) { return to_float(*from); }
__device__ inline void store(float* to, float x) { *to = x; }
__device__ inline void store(Bfloat16* to, float x) { *to = to_bfloat16(x); }

}  // namespace lorry::kernels::cuda
