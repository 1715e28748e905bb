// Streams of the emulated device: what was queued runs, in order, when somebody waits for it and not before. So a host that reads a result
// too early, or writes over what a copy has yet to read, gets wrong numbers. Behind the launches of device.h, runtime.cpp and cublaslt.cpp.
#pragma once

#include <functional>
#include <vector>

#include "kernels/cuda/emulation/runtime.h"

namespace lorry::kernels::cuda::emulation {

using Work = std::function<void()>;

// Runs at once on the default stream (null). What the work throws is thrown by whoever waits for it.
void queue(cudaStream_t stream, Work work);
// Runs what stands in the stream until `is_reached` says true; all of it at most.
void run_queued(
    cudaStream_t stream, const std::function<bool()>& is_reached = [] { return false; });
// Of all streams, all of it.
void run_all_queued();

// What is queued from here on does not run but comes back from end_capture(). Meanwhile this thread may not wait for a stream.
void begin_capture(cudaStream_t stream);
std::vector<Work> end_capture(cudaStream_t stream);
bool is_capturing();  // this thread

}  // namespace lorry::kernels::cuda::emulation
