// CUDA's runtime for host code: the real one, or the emulated device's if LORRY_CUDA_EMULATED is defined. Turns errors into exceptions.
#pragma once

#include <cstddef>
#include <stdexcept>

#if defined(LORRY_CUDA_EMULATED)
#include "kernels/cuda/emulation/runtime.h"
#else
#include <cuda_runtime_api.h>
#endif

namespace lorry::kernels::cuda {

class OutOfMemory : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws std::runtime_error "the GPU failed: WHAT: ERROR" unless the call succeeded; OutOfMemory if that is the error.
void check(cudaError_t error, const char* what);
// For a call that allocates `bytes` bytes on the device: OutOfMemory reports the size and what to do.
void check_allocation(cudaError_t error, std::size_t bytes);

}  // namespace lorry::kernels::cuda
