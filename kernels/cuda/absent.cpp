// The CUDA backend of a program that was built without a CUDA compiler: every function reports that.
#include <stdexcept>

#include "kernels/backend.h"
#include "kernels/cuda/cublaslt/tuning.h"

namespace lorry::kernels {

std::optional<std::string> cuda_obstacle() {
    return "this program was built without CUDA: run ops/setup --cuda, then build again (-DLORRY_CUDA=on fails without a compiler)";
}

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions&) { throw std::runtime_error("no GPU can be used: " + *cuda_obstacle()); }

namespace cuda {

Tuning tune_matmuls(std::span<const MatmulShape>, std::optional<std::chrono::duration<double>>, const OnTunedShape&) {
    throw std::runtime_error("no GPU can be used: " + *cuda_obstacle());
}
ChipDescription describe_chip() { throw std::runtime_error("no GPU can be used: " + *cuda_obstacle()); }
Expected<ChipRates, std::string> measure_chip() { throw std::runtime_error("no GPU can be used: " + *cuda_obstacle()); }

}  // namespace cuda

}  // namespace lorry::kernels
