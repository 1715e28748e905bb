// Streams of the emulated device. Queued work runs in order when a thread waits for it, and not before, so that a host that reads a result
// too early, or overwrites data that a copy has yet to read, gets wrong numbers. Used by the launches of device.h, runtime.cpp and
// cublaslt.cpp.
#pragma once

#include <functional>
#include <vector>

#include "kernels/cuda/emulation/runtime.h"

namespace lorry::kernels::cuda::emulation {

using Work = std::function<void()>;

// Queues work; on the default stream (null) it runs at once. Exceptions of the work are thrown to the thread that waits for it.
void queue(cudaStream_t stream, Work work);
// Runs the stream's queued work until is_reached() returns true or the queue is empty.
void run_queued(
    cudaStream_t stream, const std::function<bool()>& is_reached = [] { return false; });
// Runs all queued work of all streams.
void run_all_queued();

// Work queued from here on does not run but is returned by end_capture(). Meanwhile this thread must not wait for a stream.
void begin_capture(cudaStream_t stream);
std::vector<Work> end_capture(cudaStream_t stream);
bool is_capturing();  // on this thread

}  // namespace lorry::kernels::cuda::emulation
