// Device memory for weights, and copies to it. The base's weights have memory of their own. Adapters are loaded and dropped while the batch
// runs, when cudaMalloc and cudaFree would make every step wait; they are put into slots. Used by the backend; slots are used on the
// loader's thread.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <utility>

#include "kernels/cuda/memory.h"

namespace lorry::kernels::cuda {

// Copies to the device through pinned memory while ops run. Any thread may call it. The stream must outlive it.
class Uploads {
public:
    explicit Uploads(const Stream& stream);
    // Both return when the device's memory is written.
    void copy(std::byte* to, std::span<const std::byte> from);
    void clear(std::byte* to, std::size_t bytes);

private:
    const Stream& stream_;
    std::mutex staging_mutex_;
    PinnedMemory staging_;  // two halves: one is filled while the other is copied
};

// A weight's memory: its own, or part of a slot that outlives it. Without data if only the size is wanted.
class Piece {
public:
    Piece() = default;
    explicit Piece(DeviceMemory own) : own_(std::move(own)), data_(own_.data()), bytes_(own_.bytes()) {}
    Piece(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
    Piece(Piece&& other) noexcept
        : own_(std::move(other.own_)), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Piece& operator=(Piece&& other) noexcept;
    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

private:
    DeviceMemory own_;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

class Place {
public:
    explicit Place(Uploads& uploads) : uploads_(uploads) {}
    virtual ~Place() = default;
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    // Zero bytes are allowed. Throws OutOfMemory if the device has no more memory.
    virtual Piece take_piece(std::size_t bytes) = 0;
    Uploads& uploads() const { return uploads_; }

private:
    Uploads& uploads_;
};

class OwnPlace final : public Place {
public:
    using Place::Place;
    Piece take_piece(std::size_t bytes) override { return Piece(DeviceMemory(bytes)); }
};

// Pieces cut from a range, from its begin on. Null: pieces have sizes and no memory.
class SlotPlace final : public Place {
public:
    SlotPlace(Uploads& uploads, std::byte* begin, std::size_t bytes) : Place(uploads), begin_(begin), bytes_(bytes) {}
    Piece take_piece(std::size_t bytes) override;
    std::size_t used() const { return used_; }

private:
    std::byte* const begin_;
    const std::size_t bytes_;
    std::size_t used_ = 0;
};

}  // namespace lorry::kernels::cuda
