// Runs the full tuner with this machine's cuBLASLt; see tuning.h. The emulated `lorry` replaces these functions in
// tests/emulated_library.cpp.
#include "kernels/cuda/cublaslt/library.h"
#include "kernels/cuda/cublaslt/tuner.h"

namespace lorry::kernels::cuda {

Expected<ChipRates, std::string> measure_chip() {
    return measure_chip({}, [] { return open_cublaslt(cublaslt_places()); });
}

Tuning tune_matmuls(std::span<const MatmulShape> shapes, std::optional<std::chrono::duration<double>> time_max,
                    const OnTunedShape& on_shape) {
    return tune_matmuls(
        shapes, {.time_max = time_max}, [] { return open_cublaslt(cublaslt_places()); }, on_shape);
}

}  // namespace lorry::kernels::cuda
