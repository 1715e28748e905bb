// Device memory that comes and goes while the batch runs: adapters'. cudaMalloc and cudaFree would wait for the device, and every step with
// them; this memory comes from CUDA's stream-ordered pool, which keeps what it once had. Used by the backend for what other threads load.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <utility>

#include "kernels/cuda/memory.h"

namespace lorry::kernels::cuda {

// A piece of the pool. It goes back in the order of the ops' stream, so that nobody gets it before the ops that were queued are done.
class PooledMemory {
public:
    PooledMemory() = default;
    PooledMemory(void* data, std::size_t bytes, const Stream& ops) : data_(static_cast<std::byte*>(data)), bytes_(bytes), ops_(&ops) {}
    PooledMemory(PooledMemory&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)), ops_(other.ops_) {}
    PooledMemory& operator=(PooledMemory&& other) noexcept;
    ~PooledMemory();
    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

private:
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    const Stream* ops_ = nullptr;
};

// Any thread may call it. Outlived by both streams, and outlives its pieces.
class DevicePool {
public:
    DevicePool(const Stream& loads, const Stream& ops);

    // Memory for `bytes` bytes stays with the pool from now on. Throws OutOfMemory when the device has no more.
    void reserve(std::size_t bytes);
    // Throws as reserve() does. Zero bytes are fine.
    PooledMemory allocate(std::size_t bytes);
    // Copies through pinned memory on the loads' stream; returns once it is there.
    void upload(std::byte* to, std::span<const std::byte> from);

private:
    const Stream& loads_;
    const Stream& ops_;
    std::mutex staging_mutex_;
    PinnedMemory staging_;  // two halves: one is filled while the other travels
};

}  // namespace lorry::kernels::cuda
