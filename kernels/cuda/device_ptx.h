// The GPU's implementation of the functions that device.h lists: CUDA's built-ins, and PTX where there are none.
#pragma once

#include <cuda_runtime.h>

#include <cstring>
#include <utility>

namespace lorry::kernels::cuda {

__device__ inline int thread_in_block() { return static_cast<int>(threadIdx.x); }
__device__ inline int block_threads() { return static_cast<int>(blockDim.x); }
__device__ inline Blocks block() { return {static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z)}; }
__device__ inline Blocks grid() { return {static_cast<int>(gridDim.x), static_cast<int>(gridDim.y), static_cast<int>(gridDim.z)}; }

template <class T>
__device__ T& shared_memory() {
    extern __shared__ __align__(128) unsigned char bytes[];
    return *reinterpret_cast<T*>(bytes);
}

__device__ inline void barrier() { __syncthreads(); }
__device__ inline void warp_barrier() { __syncwarp(); }

template <class T>
__device__ T shuffle_xor(T x, int mask) {
    return __shfl_xor_sync(~0U, x, mask);
}
template <class T>
__device__ T shuffle_from(T x, int from) {
    return __shfl_sync(~0U, x, from);
}
__device__ inline std::uint32_t ballot(bool x) { return __ballot_sync(~0U, x); }

__device__ inline void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Requires __CUDA_ARCH__ >= 890.
__device__ inline void multiply_add_e4m3(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Widens two e4m3, each in the upper half of 16 bits; the lower halves are ignored. An e4m3's bits in the position of a bfloat16's are its
// value times 2^-120.
__device__ inline std::uint32_t widen_pair(std::uint32_t pair) {
    constexpr std::uint32_t from_exponent = 0x7B807B80;  // twice 2^120
    std::uint32_t widened;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(widened)
        : "r"((pair & 0x80008000U) | (pair & 0x7F007F00U) >> 4), "r"(from_exponent), "r"(0x80008000U));
    return widened;
}
__device__ inline void widen(std::uint32_t four, std::uint32_t& even, std::uint32_t& odd) {
    even = widen_pair(four << 8);
    odd = widen_pair(four);
}

__device__ inline std::uint32_t shared_address(const void* address) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(address));
}
__device__ inline void load_matrices(std::uint32_t (&r)[4], const Bfloat16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ inline void load_matrices(std::uint32_t (&r)[4], const Fp8* row) { load_matrices(r, reinterpret_cast<const Bfloat16*>(row)); }
__device__ inline void load_matrices_transposed(std::uint32_t (&r)[4], const Bfloat16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ inline void load_matrices_transposed(std::uint32_t (&r)[4], const Fp8* row) {
    load_matrices_transposed(r, reinterpret_cast<const Bfloat16*>(row));
}

__device__ inline void copy_async(void* to, const void* from, bool wanted) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(wanted ? 16 : 0) : "memory");
}
__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups>
__device__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

template <class T>
__device__ T load_whole(const T* from) {
    static_assert(alignof(T) == sizeof(T) && sizeof(T) <= 16);
    return *from;
}
template <class T>
__device__ void store_whole(T* to, const T& x) {
    static_assert(alignof(T) == sizeof(T) && sizeof(T) <= 16);
    *to = x;
}

__device__ inline void atomic_add(std::uint32_t* to, std::uint32_t x) { atomicAdd(to, x); }
__device__ inline void atomic_or(std::uint32_t* to, std::uint32_t x) { atomicOr(to, x); }
__device__ inline void atomic_max(std::uint32_t* to, std::uint32_t x) { atomicMax(to, x); }
__device__ inline std::uint32_t arrive(std::uint32_t* count, std::uint32_t x) {
    __threadfence();
    const std::uint32_t before = atomicAdd(count, x);
    __threadfence();
    return before;
}

__device__ inline std::uint32_t pack(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
__device__ inline Bfloat16 to_bfloat16(float x) { return {static_cast<std::uint16_t>(pack(x, 0.0F))}; }
__device__ inline float to_float(Bfloat16 x) { return __uint_as_float(static_cast<std::uint32_t>(x.bits) << 16); }

__device__ inline Fp8 to_fp8(float x) {
#if __CUDA_ARCH__ >= 890
    std::uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(x));
    return {static_cast<std::uint8_t>(pair)};
#else
    return fp8_of(x);
#endif
}

// Queues kernel(arguments...) on the stream; cudaGetLastError() reports a launch that fails.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Launch& how, Arguments&&... arguments) {
    constexpr std::size_t shared_bytes_unasked = std::size_t{48} << 10;
    if (how.shared_bytes > shared_bytes_unasked) {
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(how.shared_bytes));
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(how.blocks.x), static_cast<unsigned>(how.blocks.y), static_cast<unsigned>(how.blocks.z));
    config.blockDim = dim3(static_cast<unsigned>(how.threads));
    config.dynamicSmemBytes = how.shared_bytes;
    config.stream = how.stream;
    cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...);
}

}  // namespace lorry::kernels::cuda
