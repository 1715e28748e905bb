// CUDA's memory pool and the pinned memory that copies pass through; see pool.h.
#include "kernels/cuda/pool.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

namespace lorry::kernels::cuda {

namespace {

constexpr std::size_t staging_half_bytes = std::size_t{4} << 20;

}  // namespace

PooledMemory& PooledMemory::operator=(PooledMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(ops_, other.ops_);
    return *this;
}

// Nothing can be told of a failure here; the next call on the device reports it again.
PooledMemory::~PooledMemory() {
    if (data_ != nullptr) static_cast<void>(cudaFreeAsync(data_, ops_->get()));
}

DevicePool::DevicePool(const Stream& loads, const Stream& ops) : loads_(loads), ops_(ops), staging_(2 * staging_half_bytes) {
    int device = 0;
    check(cudaGetDevice(&device), "asking for the device");
    cudaMemPool_t pool = nullptr;
    check(cudaDeviceGetDefaultMemPool(&pool, device), "asking for its memory pool");
    std::uint64_t kept = std::numeric_limits<std::uint64_t>::max();
    check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept), "keeping the pool's memory");
}

void DevicePool::reserve(std::size_t bytes) {
    static_cast<void>(allocate(bytes));  // what the pool once had it keeps
    ops_.wait();
}

PooledMemory DevicePool::allocate(std::size_t bytes) {
    if (bytes == 0) return {};
    void* memory = nullptr;
    check_allocation(cudaMallocAsync(&memory, bytes, loads_.get()), bytes);
    loads_.wait();  // so that it may be used on any stream
    return {memory, bytes, ops_};
}

void DevicePool::upload(std::byte* to, std::span<const std::byte> from) {
    const std::lock_guard lock(staging_mutex_);
    bool second = false;
    for (std::size_t begin = 0; begin < from.size(); begin += staging_half_bytes) {
        const std::size_t bytes = std::min(staging_half_bytes, from.size() - begin);
        std::byte* const half = staging_.data() + (second ? staging_half_bytes : 0);
        std::memcpy(half, from.data() + begin, bytes);
        loads_.wait();  // for the other half, which is filled next
        check(cudaMemcpyAsync(to + begin, half, bytes, cudaMemcpyHostToDevice, loads_.get()), "copying to it");
        second = !second;
    }
    loads_.wait();
}

}  // namespace lorry::kernels::cuda
