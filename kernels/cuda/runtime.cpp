// CUDA's errors as exceptions; see runtime.h.
#include "kernels/cuda/runtime.h"

#include <string>

namespace lorry::kernels::cuda {

void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    static_cast<void>(cudaGetLastError());  // it is reported here, not by the next launch
    const std::string message = std::string("the GPU failed: ") + what + ": " + cudaGetErrorString(error);
    if (error == cudaErrorMemoryAllocation) throw OutOfMemory(message);
    throw std::runtime_error(message);
}

void check_allocation(cudaError_t error, std::size_t bytes) {
    if (error != cudaErrorMemoryAllocation) return check(error, "allocating memory");
    static_cast<void>(cudaGetLastError());
    throw OutOfMemory("the GPU has no " + std::to_string(bytes) + " bytes of memory left: lower kv_memory or adapter_memory");
}

}  // namespace lorry::kernels::cuda
