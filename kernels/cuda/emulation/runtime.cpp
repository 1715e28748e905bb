// Implements CUDA's runtime for the emulated device; see runtime.h. New memory is filled with NaN, as unwritten memory may be.
#include "kernels/cuda/emulation/runtime.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cuda/emulation/stream.h"

using lorry::kernels::cuda::emulation::is_capturing;
using lorry::kernels::cuda::emulation::queue;
using lorry::kernels::cuda::emulation::run_all_queued;
using lorry::kernels::cuda::emulation::run_queued;

namespace {

constexpr std::size_t alignment = 256;  // like cudaMalloc
constexpr std::size_t memory_bytes = std::size_t{1} << 30;
constexpr double copied_per_microsecond = 1e4;  // bytes
constexpr int cuda_version = 13000;
// Larger pieces are not filled: most of them are reserved, not used.
constexpr std::size_t filled_bytes_most = std::size_t{64} << 20;

std::atomic<std::uint64_t> waits{0};
std::atomic<std::uint64_t> graphs{0};
std::atomic<std::size_t> graph_bytes{0};
std::atomic<std::size_t> graph_bytes_most{memory_bytes};

std::atomic<double> microseconds_passed{0.0};

// Begins an operation that waits for the whole device, which is an error while a stream captures.
cudaError_t begin_waiting() {
    if (is_capturing()) return cudaErrorStreamCaptureUnsupported;
    ++waits;
    return cudaSuccess;
}

// Host memory that the device can access by itself: begin and end of each piece.
struct PinnedMemory {
    std::mutex mutex;
    std::map<const std::byte*, const std::byte*> pieces;
};
PinnedMemory& pinned() {
    static PinnedMemory instance;
    return instance;
}
bool is_pinned(const void* memory) {
    const std::lock_guard lock(pinned().mutex);
    const auto* const at = static_cast<const std::byte*>(memory);
    const auto after = pinned().pieces.upper_bound(at);
    return after != pinned().pieces.begin() && at < std::prev(after)->second;
}

// Device memory: bytes of each piece.
struct DeviceMemory {
    std::mutex mutex;
    std::map<const void*, std::size_t> pieces;
    std::size_t bytes = 0;
};
DeviceMemory& device_memory() {
    static DeviceMemory instance;
    return instance;
}
std::size_t bytes_free() {
    const std::lock_guard lock(device_memory().mutex);
    return memory_bytes - std::min(memory_bytes, graph_bytes + device_memory().bytes);
}

enum class Fill : std::uint8_t { none, nan };
cudaError_t allocate(void** memory, std::size_t bytes, Fill fill) {
    if (posix_memalign(memory, alignment, bytes) != 0) return cudaErrorMemoryAllocation;
    if (fill == Fill::nan) std::memset(*memory, 0xFF, bytes);
    return cudaSuccess;
}
cudaError_t allocate_device(void** memory, std::size_t bytes, Fill fill) {
    if (bytes > bytes_free()) return cudaErrorMemoryAllocation;
    const cudaError_t error = allocate(memory, bytes, fill);
    if (error != cudaSuccess) return error;
    const std::lock_guard lock(device_memory().mutex);
    device_memory().pieces.emplace(*memory, bytes);
    device_memory().bytes += bytes;
    return cudaSuccess;
}
void free_device(void* memory) {
    {
        const std::lock_guard lock(device_memory().mutex);
        const auto piece = device_memory().pieces.find(memory);
        if (piece != device_memory().pieces.end()) {
            device_memory().bytes -= piece->second;
            device_memory().pieces.erase(piece);
        }
    }
    std::free(memory);
}

}  // namespace

const char* cudaGetErrorString(cudaError_t error) {
    if (error == cudaErrorStreamCaptureUnsupported) return "operation not permitted when stream is capturing";
    return error == cudaSuccess ? "no error" : "out of memory";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) {
    *version = cuda_version;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    *properties = {.name = "emulated", .totalGlobalMem = memory_bytes, .major = 9, .minor = 0, .multiProcessorCount = 1};
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    *total = memory_bytes;
    *free = bytes_free();
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    if (const cudaError_t error = begin_waiting(); error != cudaSuccess) return error;
    return allocate_device(memory, bytes, bytes <= filled_bytes_most ? Fill::nan : Fill::none);
}
cudaError_t cudaFree(void* memory) {
    if (const cudaError_t error = begin_waiting(); error != cudaSuccess) return error;
    run_all_queued();
    free_device(memory);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
    if (const cudaError_t error = begin_waiting(); error != cudaSuccess) return error;
    const cudaError_t error = allocate(memory, bytes, Fill::nan);
    const auto* const begin = static_cast<const std::byte*>(*memory);
    const std::lock_guard lock(pinned().mutex);
    if (error == cudaSuccess) pinned().pieces.emplace(begin, begin + bytes);
    return error;
}
cudaError_t cudaFreeHost(void* memory) {
    run_all_queued();
    {
        const std::lock_guard lock(pinned().mutex);
        pinned().pieces.erase(static_cast<const std::byte*>(memory));
    }
    if (const cudaError_t error = begin_waiting(); error != cudaSuccess) return error;
    std::free(memory);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    queue(stream, [=] {
        std::memcpy(to, from, bytes);
        lorry::kernels::cuda::emulation::pass(static_cast<double>(bytes) / copied_per_microsecond);
    });
    // The device cannot access other host memory by itself, so the copy waits.
    const bool runs_alone = kind == cudaMemcpyDeviceToDevice || is_pinned(kind == cudaMemcpyHostToDevice ? from : to);
    return runs_alone ? cudaSuccess : cudaStreamSynchronize(stream);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                              std::size_t height, cudaMemcpyKind, cudaStream_t stream) {
    queue(stream, [=] {
        for (std::size_t row = 0; row < height; ++row)
            std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
    });
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    queue(stream, [=] { std::memset(to, value, bytes); });
    return cudaSuccess;
}

struct EmulatedGraph {
    std::vector<lorry::kernels::cuda::emulation::Work> launches;
};
struct EmulatedGraphExec : EmulatedGraph {};
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    lorry::kernels::cuda::emulation::begin_capture(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    *graph = new EmulatedGraph{lorry::kernels::cuda::emulation::end_capture(stream)};
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    const std::size_t bytes = graph->launches.size() * lorry::kernels::cuda::emulation::graph_launch_bytes;
    if (graph_bytes + bytes > graph_bytes_most) return cudaErrorMemoryAllocation;
    *exec = new EmulatedGraphExec{{graph->launches}};
    ++graphs;
    graph_bytes += bytes;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    for (const auto& work : exec->launches) queue(stream, work);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    graph_bytes -= exec->launches.size() * lorry::kernels::cuda::emulation::graph_launch_bytes;
    delete exec;
    return cudaSuccess;
}

struct EmulatedEvent {
    cudaStream_t stream = nullptr;
    std::atomic<std::uint64_t> recorded{0};  // number of records
    std::atomic<std::uint64_t> reached{0};   // records reached so far
    double microseconds = 0.0;
};
cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = new EmulatedEvent;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    cudaEventSynchronize(event);
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    event->stream = stream;
    ++event->recorded;
    queue(stream, [event] {
        ++event->reached;
        event->microseconds = microseconds_passed;
    });
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    run_queued(event->stream, [event] { return event->reached == event->recorded; });
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    queue(stream, [event, from = event->stream, record = event->recorded.load()] {
        run_queued(from, [&] { return event->reached >= record; });
    });
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    *milliseconds = static_cast<float>((end->microseconds - begin->microseconds) * 1e-3);
    return cudaSuccess;
}

namespace lorry::kernels::cuda::emulation {

std::uint64_t device_wide_waits() { return waits; }
std::uint64_t graphs_made() { return graphs; }
void limit_graphs(std::size_t bytes) { graph_bytes_most = bytes; }

void pass(double microseconds) { microseconds_passed.fetch_add(microseconds); }

}  // namespace lorry::kernels::cuda::emulation
