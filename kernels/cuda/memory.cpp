// Allocation and copies; see memory.h.
#include "kernels/cuda/memory.h"

#include <algorithm>
#include <cstring>

namespace lorry::kernels::cuda {

namespace {

constexpr std::size_t table_piece_bytes = std::size_t{1} << 20;
constexpr std::size_t table_alignment = 16;

}  // namespace

Stream::Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream"); }
// A failure cannot be reported here; the next call on the device reports it again.
Stream::~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
void Stream::wait() const { check(cudaStreamSynchronize(stream_), "waiting for a stream"); }

Event::Event() { check(cudaEventCreate(&event_), "making an event"); }
Event::~Event() { static_cast<void>(cudaEventDestroy(event_)); }
void Event::record(const Stream& stream) { check(cudaEventRecord(event_, stream.get()), "recording an event"); }
void Event::wait() const { check(cudaEventSynchronize(event_), "waiting for an event"); }
void Event::hold_back(const Stream& stream) const { check(cudaStreamWaitEvent(stream.get(), event_, 0), "waiting between streams"); }
double Event::seconds_since(const Event& begin) const {
    float milliseconds = 0.0F;
    check(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "reading an event");
    return static_cast<double>(milliseconds) * 1e-3;
}

void Graph::end_capture(const Stream& stream) {
    cudaGraph_t captured = nullptr;
    check(cudaStreamEndCapture(stream.get(), &captured), "ending a graph");
    const cudaError_t error = cudaGraphInstantiate(&graph_, captured, 0);
    static_cast<void>(cudaGraphDestroy(captured));
    check(error, "making a graph");
    static_cast<void>(cudaGraphUpload(graph_, stream.get()));  // otherwise the first launch would upload it
}
void Graph::drop_capture(const Stream& stream) {
    cudaGraph_t captured = nullptr;
    if (cudaStreamEndCapture(stream.get(), &captured) == cudaSuccess) static_cast<void>(cudaGraphDestroy(captured));
}
Graph::~Graph() {
    if (graph_ != nullptr) static_cast<void>(cudaGraphExecDestroy(graph_));
}
void Graph::launch(const Stream& stream) const { check(cudaGraphLaunch(graph_, stream.get()), "launching a graph"); }

PinnedMemory::PinnedMemory(std::size_t bytes) : bytes_(bytes) {
    void* memory = nullptr;
    check(cudaMallocHost(&memory, bytes), "pinning memory");
    data_.reset(static_cast<std::byte*>(memory));
}

void PinnedMemory::Free::operator()(std::byte* memory) const { static_cast<void>(cudaFreeHost(memory)); }

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* memory = nullptr;
    check_allocation(cudaMalloc(&memory, bytes), bytes);
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

Tables::Place<std::byte> Tables::reserve_bytes(std::size_t wanted) {
    const std::size_t bytes = (wanted + table_alignment - 1) / table_alignment * table_alignment;
    while (current_ < pieces_.size() && pieces_[current_].used + bytes > pieces_[current_].device.bytes()) ++current_;
    if (current_ == pieces_.size()) add_piece(std::max(bytes, table_piece_bytes));
    Piece& piece = pieces_[current_];
    const Place<std::byte> place{piece.host.data() + piece.used, piece.device.data() + piece.used};
    std::memset(place.host, 0, bytes);
    piece.used += bytes;
    return place;
}

void Tables::add_piece(std::size_t bytes) { pieces_.push_back({.host = PinnedMemory(bytes), .device = DeviceMemory(bytes)}); }

void Tables::make_room(std::size_t bytes) {
    std::size_t room = 0;
    for (const Piece& piece : pieces_) room += piece.device.bytes();
    if (room < bytes) add_piece(bytes - room);
}

void Tables::copy() {
    for (Piece& piece : pieces_) {
        if (piece.copied == piece.used) continue;
        check(cudaMemcpyAsync(piece.device.data() + piece.copied, piece.host.data() + piece.copied, piece.used - piece.copied,
                              cudaMemcpyHostToDevice, stream_.get()),
              "copying tables");
        piece.copied = piece.used;
    }
}

void Tables::clear() {
    for (Piece& piece : pieces_) piece.used = piece.copied = 0;
    current_ = 0;
}

}  // namespace lorry::kernels::cuda
