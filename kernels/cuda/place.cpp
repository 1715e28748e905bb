// Cuts slots into pieces and copies through pinned memory; see place.h.
#include "kernels/cuda/place.h"

#include <algorithm>
#include <cstring>

#include "kernels/backend.h"
#include "schema/check.h"

namespace lorry::kernels::cuda {

namespace {

constexpr std::size_t staging_half_bytes = std::size_t{4} << 20;

}  // namespace

Uploads::Uploads(const Stream& stream) : stream_(stream), staging_(2 * staging_half_bytes) {}

void Uploads::copy(std::byte* to, std::span<const std::byte> from) {
    const std::lock_guard lock(staging_mutex_);
    bool second = false;
    for (std::size_t begin = 0; begin < from.size(); begin += staging_half_bytes) {
        const std::size_t bytes = std::min(staging_half_bytes, from.size() - begin);
        std::byte* const half = staging_.data() + (second ? staging_half_bytes : 0);
        std::memcpy(half, from.data() + begin, bytes);
        stream_.wait();  // for the copy of the other half, which is filled next
        check(cudaMemcpyAsync(to + begin, half, bytes, cudaMemcpyHostToDevice, stream_.get()), "copying to it");
        second = !second;
    }
    stream_.wait();
}

void Uploads::clear(std::byte* to, std::size_t bytes) {
    if (bytes == 0) return;
    check(cudaMemsetAsync(to, 0, bytes, stream_.get()), "clearing memory");
    stream_.wait();
}

Piece& Piece::operator=(Piece&& other) noexcept {
    own_ = std::move(other.own_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

Piece SlotPlace::take_piece(std::size_t bytes) {
    const std::size_t at = std::exchange(used_, used_ + slot_aligned(bytes));
    if (begin_ == nullptr) return {nullptr, bytes};
    CHECK(used_ <= bytes_, "an adapter fits into the slot that was measured for it");
    return {begin_ + at, bytes};
}

}  // namespace lorry::kernels::cuda
