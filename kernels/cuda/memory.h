// Owners of CUDA's handles: device memory, pinned host memory, streams, events, graphs; and, built on them, growing scratch memory and
// tables. Used by CudaBackend.
#pragma once

#include <algorithm>
#include <cstddef>
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

// A position in a stream.
class Event {
public:
    Event();
    ~Event();
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    // Records it after everything queued so far.
    void record(const Stream& stream);
    // Waits until the device has reached the position recorded last.
    void wait() const;
    // What is queued on that stream from now on runs after the position recorded last.
    void hold_back(const Stream& stream) const;
    // The device's time from `begin` to this event; both must have been waited for.
    double seconds_since(const Event& begin) const;

private:
    cudaEvent_t event_ = nullptr;
};

// What `queue` puts on the stream, captured so that one call can queue it again.
class Graph {
public:
    template <class Queue>
    Graph(const Stream& stream, const Queue& queue) {
        check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "beginning a graph");
        try {
            queue();
        } catch (...) {
            drop_capture(stream);
            throw;
        }
        end_capture(stream);
    }
    Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
    Graph& operator=(Graph&&) = delete;
    ~Graph();
    void launch(const Stream& stream) const;

private:
    void end_capture(const Stream& stream);
    static void drop_capture(const Stream& stream);

    cudaGraphExec_t graph_ = nullptr;
};

// Host memory that the device can copy from and to while the host continues.
class PinnedMemory {
public:
    PinnedMemory() = default;
    explicit PinnedMemory(std::size_t bytes);
    std::byte* data() const { return data_.get(); }
    std::size_t bytes() const { return bytes_; }

private:
    struct Free {
        void operator()(std::byte* memory) const;
    };
    std::unique_ptr<std::byte, Free> data_;
    std::size_t bytes_ = 0;
};

class DeviceMemory {
public:
    DeviceMemory() = default;
    // Throws OutOfMemory with the size if the device has no more memory. Zero bytes are allowed.
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

// Memory that ops use one after the other. It grows to the largest size asked for; growing waits for the device.
template <class Memory>
class GrowingMemory {
public:
    template <class T>
    T* of(std::size_t count) {
        if (memory_.bytes() < count * sizeof(T)) {
            memory_ = Memory();
            memory_ = Memory(count * sizeof(T));
        }
        return reinterpret_cast<T*>(memory_.data());
    }

private:
    Memory memory_;
};
using Scratch = GrowingMemory<DeviceMemory>;
using PinnedScratch = GrowingMemory<PinnedMemory>;

// Tables that the host passes to kernels. They collect in pinned memory until one copy in stream order takes them to the device, and are
// dropped together. Tables of the same sizes, put in the same order, get the same addresses.
class Tables {
public:
    explicit Tables(const Stream& stream) : stream_(stream) {}

    template <class T>
    struct Place {
        T* host = nullptr;  // may be written until the next copy()
        T* device = nullptr;
    };
    // Returns zeroed memory, valid until clear().
    template <class T>
    Place<T> reserve(std::size_t count) {
        const Place<std::byte> place = reserve_bytes(count * sizeof(T));
        return {reinterpret_cast<T*>(place.host), reinterpret_cast<T*>(place.device)};
    }
    // Returns the device's copy.
    template <class T>
    T* put(std::span<const T> table) {
        const Place<T> place = reserve<T>(table.size());
        std::ranges::copy(table, place.host);
        return place.device;
    }
    template <class T>
    T* put(const std::vector<T>& table) {
        return put(std::span<const T>(table));
    }
    template <class T>
    T* put_one(const T& entry) {
        return put(std::span(&entry, 1));
    }
    // Makes room for `bytes` bytes of tables. Later tables that need more allocate it, which stops the device.
    void make_room(std::size_t bytes);
    // Queues the copy of the new tables.
    void copy();
    // The stream must have finished all copies of these tables and all kernels that read them.
    void clear();

private:
    struct Piece {
        PinnedMemory host;
        DeviceMemory device;
        std::size_t used = 0;
        std::size_t copied = 0;
    };
    Place<std::byte> reserve_bytes(std::size_t bytes);
    void add_piece(std::size_t bytes);

    const Stream& stream_;
    std::vector<Piece> pieces_;
    std::size_t current_ = 0;
};

}  // namespace lorry::kernels::cuda
