// Allocation and copies; see memory.h.
#include "kernels/cuda/memory.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace lorry::kernels::cuda {

namespace {

constexpr std::size_t table_piece_bytes = std::size_t{1} << 20;
constexpr std::size_t table_alignment = 16;

}  // namespace

Stream::Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream"); }
// Nothing can be told of a failure here; the next call on the device reports it again.
Stream::~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
void Stream::wait() const { check(cudaStreamSynchronize(stream_), "waiting for a stream"); }

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());  // it is reported here, not by the next launch
    if (error == cudaErrorMemoryAllocation) {
        throw std::runtime_error("the GPU has no " + std::to_string(bytes) + " bytes of memory left: lower kv_memory or adapter_memory");
    }
    check(error, "allocating memory");
    data_ = static_cast<std::byte*>(memory);
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

DeviceMemory::~DeviceMemory() {
    if (data_ != nullptr) static_cast<void>(cudaFree(data_));
}

std::byte* Scratch::at_least(std::size_t bytes) {
    if (memory_.bytes() < bytes) {
        memory_ = DeviceMemory();
        memory_ = DeviceMemory(bytes);
    }
    return memory_.data();
}

void Tables::FreePinned::operator()(std::byte* memory) const { static_cast<void>(cudaFreeHost(memory)); }

const std::byte* Tables::put_bytes(std::span<const std::byte> table) {
    const std::size_t bytes = (table.size() + table_alignment - 1) / table_alignment * table_alignment;
    while (current_ < pieces_.size() && pieces_[current_].used + bytes > pieces_[current_].device.bytes()) ++current_;
    if (current_ == pieces_.size()) {
        Piece piece;
        const std::size_t size = std::max(bytes, table_piece_bytes);
        void* host = nullptr;
        check(cudaMallocHost(&host, size), "pinning memory for tables");
        piece.host.reset(static_cast<std::byte*>(host));
        piece.device = DeviceMemory(size);
        pieces_.push_back(std::move(piece));
    }
    Piece& piece = pieces_[current_];
    std::byte* const to = piece.device.data() + piece.used;
    if (!table.empty()) {
        std::memcpy(piece.host.get() + piece.used, table.data(), table.size());
        check(cudaMemcpyAsync(to, piece.host.get() + piece.used, table.size(), cudaMemcpyHostToDevice, stream_.get()), "copying a table");
    }
    piece.used += bytes;
    return to;
}

void Tables::clear() {
    stream_.wait();
    for (Piece& piece : pieces_) piece.used = 0;
    current_ = 0;
}

}  // namespace lorry::kernels::cuda
