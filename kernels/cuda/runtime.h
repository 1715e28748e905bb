// CUDA's runtime for host code: the real one, or the emulated device's when LORRY_CUDA_EMULATED is defined. Errors become exceptions here.
#pragma once

#if defined(LORRY_CUDA_EMULATED)
#include "kernels/cuda/emulation/runtime.h"
#else
#include <cuda_runtime_api.h>
#endif

namespace lorry::kernels::cuda {

// Throws std::runtime_error "the GPU failed: WHAT: ERROR" unless the call succeeded.
void check(cudaError_t error, const char* what);

}  // namespace lorry::kernels::cuda
