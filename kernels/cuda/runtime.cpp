// CUDA's errors as exceptions; see runtime.h.
#include "kernels/cuda/runtime.h"

#include <stdexcept>
#include <string>

namespace lorry::kernels::cuda {

void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) throw std::runtime_error(std::string("the GPU failed: ") + what + ": " + cudaGetErrorString(error));
}

}  // namespace lorry::kernels::cuda
