// Implements the queues; see stream.h.
#include "kernels/cuda/emulation/stream.h"

#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

struct EmulatedStream {
    std::mutex mutex;
    std::deque<lorry::kernels::cuda::emulation::Work> queued;
    std::optional<std::vector<lorry::kernels::cuda::emulation::Work>> captured;
};

namespace {

thread_local int streams_captured = 0;

// All streams of the process. The lock of a stream may be taken while this one is held, never the other way round.
struct Streams {
    std::mutex mutex;
    std::set<cudaStream_t> all;
};
Streams& streams() {
    static Streams instance;
    return instance;
}

}  // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    *stream = new EmulatedStream;
    const std::lock_guard lock(streams().mutex);
    streams().all.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    lorry::kernels::cuda::emulation::run_queued(stream);
    const std::lock_guard lock(streams().mutex);
    streams().all.erase(stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (lorry::kernels::cuda::emulation::is_capturing()) return cudaErrorStreamCaptureUnsupported;
    lorry::kernels::cuda::emulation::run_queued(stream);
    return cudaSuccess;
}

namespace lorry::kernels::cuda::emulation {

void queue(cudaStream_t stream, Work work) {
    if (stream == nullptr) {
        work();
        return;
    }
    const std::lock_guard lock(stream->mutex);
    if (stream->captured) {
        stream->captured->push_back(std::move(work));
    } else {
        stream->queued.push_back(std::move(work));
    }
}

void begin_capture(cudaStream_t stream) {
    const std::lock_guard lock(stream->mutex);
    stream->captured.emplace();
    ++streams_captured;
}

std::vector<Work> end_capture(cudaStream_t stream) {
    const std::lock_guard lock(stream->mutex);
    --streams_captured;
    return *std::exchange(stream->captured, std::nullopt);
}

bool is_capturing() { return streams_captured > 0; }

void run_queued(cudaStream_t stream, const std::function<bool()>& is_reached) {
    if (stream == nullptr) return;
    const std::lock_guard lock(stream->mutex);
    while (!stream->queued.empty() && !is_reached()) {
        const Work work = std::move(stream->queued.front());
        stream->queued.pop_front();
        work();
    }
}

void run_all_queued() {
    const std::lock_guard lock(streams().mutex);
    for (const cudaStream_t stream : streams().all) run_queued(stream);
}

}  // namespace lorry::kernels::cuda::emulation
