// The device functions that kernels use, and the only way to launch a kernel. Every .cu file includes this header and none of CUDA's own;
// it is the only one that depends on whether nvcc or the host's compiler reads it. device_ptx.h has the functions for a GPU,
// emulation/device.h the same functions for the host; what both share is below.
//
//   thread_in_block(), block_threads(), lane(), warp()   the running thread; blocks are one-dimensional, a multiple of 32 threads
//   block(), grid()                                      its block's place, and how many there are: .x .y .z
//   shared_memory<T>()                                   the block's shared memory as a T; the launch says how large it is
//   barrier(), warp_barrier()                            all threads of the block, or of the warp, arrive here before any continues
//   shuffle_xor(x, mask), shuffle_from(x, from), ballot(b)    between the lanes of a full warp
//   multiply_add(d, a, b)                                mma.sync m16n8k16 of bfloat16 with float32 sums (PTX ISA 9.7.14.5.8's fragments)
//   multiply_add_fp8(d, a, b)                            the same m16n8k32 of e4m3; the result for NaN is unspecified
//   widen(four, even, odd)                               four e4m3 to pairs of bfloat16, first and third, second and fourth: exact
//   load_matrices(r, row), ..._transposed(r, row)        ldmatrix x4: lane 8 m + i names row i of matrix m; two e4m3 count as one
//   copy_async(to, from, wanted)                         16 bytes, global to shared memory; zeros if not wanted: `from` is then not read
//   copy_async_commit(), copy_async_wait<groups>()       closes a group; waits until at most that many groups are in flight
//   load_whole(from), store_whole(to, x)                 a T of up to 16 bytes in global memory, at a multiple of its size, in one access
//   atomic_add(to, x), atomic_or(to, x), atomic_max(to, x)    on 32-bit words in global memory, by any threads; nothing is returned
//   arrive(count, x)                                     adds x in global memory and returns the old value; what the block stored before a
//                                                        preceding barrier is visible to blocks that arrive later, after their barrier
//   pack(low, high), to_bfloat16(x), to_float(x)         float32 to bfloat16 rounds to nearest even
//   to_fp8(x)                                            as fp8_of in fp8.h
//
// Warp operations need all 32 lanes at the same call: make their arguments conditional, not the call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/fp8.h"
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

// The number of blocks, the threads of each, and the bytes of shared memory of each.
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

// The sum and the maximum over the lanes of a warp, in an order that does not depend on the values.
template <class T>
__device__ T warp_sum(T x) {
    for (int distance = warp_size / 2; distance > 0; distance /= 2) x += shuffle_xor(x, distance);
    return x;
}
template <class T>
__device__ T larger(T a, T b) {
    return a > b ? a : b;
}
template <class T>
__device__ T warp_largest(T x) {
    for (int distance = warp_size / 2; distance > 0; distance /= 2) x = larger(x, shuffle_xor(x, distance));
    return x;
}

// The values of a block, combined in an order that does not depend on them: `scratch` holds one T per warp in shared memory and may be used
// again after the next barrier.
template <class T, class Combine>
__device__ T block_combined(T x, T* scratch, const Combine& combine) {
    for (int distance = warp_size / 2; distance > 0; distance /= 2) x = combine(x, shuffle_xor(x, distance));
    if (lane() == 0) scratch[warp()] = x;
    barrier();
    // Each warp combines all warps' values, so that lane 0 ends with the result.
    const int warps = block_threads() / warp_size;
    x = scratch[lane() < warps ? lane() : 0];
    for (int distance = warp_size / 2; distance > 0; distance /= 2) {
        if (distance >= warps) continue;
        const T other = shuffle_xor(x, distance);
        if ((lane() ^ distance) < warps) x = combine(x, other);
    }
    barrier();
    return shuffle_from(x, 0);
}
template <class T>
__device__ T block_sum(T x, T* scratch) {
    return block_combined(x, scratch, [](T a, T b) { return a + b; });
}
template <class T>
__device__ T block_largest(T x, T* scratch) {
    return block_combined(x, scratch, [](T a, T b) { return larger(a, b); });
}

// multiply_add_fp8 for chips without that mma: every e4m3 is representable as bfloat16. The four neighbours in a register become two pairs,
// which take the places of neighbours 8 apart, in a and in b: only the order of k changes.
__device__ inline void multiply_add_widened(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        std::uint32_t left[4];
        std::uint32_t right[2];
        widen(a[2 * half], left[0], left[2]);
        widen(a[2 * half + 1], left[1], left[3]);
        widen(b[half], right[0], right[1]);
        multiply_add(d, left, right);
    }
}

__device__ inline void multiply_add_fp8(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
    multiply_add_widened(d, a, b);
#else
    multiply_add_e4m3(d, a, b);
#endif
}

// Elements of a matrix, and of a KV cache.
__device__ inline float load(const float* from) { return *from; }
__device__ inline float load(const Bfloat16* from) { return to_float(*from); }
__device__ inline float load(const Fp8* from) { return float_of(*from); }
__device__ inline void store(float* to, float x) { *to = x; }
__device__ inline void store(Bfloat16* to, float x) { *to = to_bfloat16(x); }
__device__ inline void store(Fp8* to, float x) { *to = to_fp8(x); }

}  // namespace lorry::kernels::cuda
