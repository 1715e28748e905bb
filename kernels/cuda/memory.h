// Device memory, streams, scratch that grows and the tables of a step. What owns CUDA's handles is here.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/runtime.h"

namespace lorry::kernels::cuda {

class Stream {
public:
    Stream();
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    cudaStream_t get() const { return stream_; }
    void wait() const;

private:
    cudaStream_t stream_ = nullptr;
};

class DeviceMemory {
public:
    DeviceMemory() = default;
    // Throws std::runtime_error saying how much was asked for when the device has no more. Zero bytes are fine.
    explicit DeviceMemory(std::size_t bytes);
    DeviceMemory(DeviceMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    DeviceMemory& operator=(DeviceMemory&& other) noexcept;
    ~DeviceMemory();
    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

private:
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// Memory that ops use one after the other. It grows to what was asked for most; growing waits for the device.
class Scratch {
public:
    template <class T>
    T* of(std::size_t count) {
        return reinterpret_cast<T*>(at_least(count * sizeof(T)));
    }

private:
    std::byte* at_least(std::size_t bytes);
    DeviceMemory memory_;
};

// What the host tells kernels in tables. Each table is copied to pinned memory and from there to the device in the order of the stream; all
// are forgotten together, once the stream has read them.
class Tables {
public:
    explicit Tables(const Stream& stream) : stream_(stream) {}

    // The device's copy. Valid until clear().
    template <class T>
    const T* put(std::span<const T> table) {
        return reinterpret_cast<const T*>(put_bytes(std::as_bytes(table)));
    }
    template <class T>
    const T* put(const std::vector<T>& table) {
        return put(std::span<const T>(table));
    }
    // Waits for the stream.
    void clear();

private:
    struct FreePinned {
        void operator()(std::byte* memory) const;
    };
    struct Piece {
        std::unique_ptr<std::byte, FreePinned> host;
        DeviceMemory device;
        std::size_t used = 0;
    };
    const std::byte* put_bytes(std::span<const std::byte> table);

    const Stream& stream_;
    std::vector<Piece> pieces_;
    std::size_t current_ = 0;
};

}  // namespace lorry::kernels::cuda
