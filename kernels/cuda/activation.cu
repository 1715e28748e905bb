// act(x), or act(gate) * up. Threads walk the columns of a row.
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row.h"

namespace lorry::kernels::cuda {

namespace {

constexpr int threads_most = row_threads_max;

__device__ float activate(ActivationKind kind, float x) {
    constexpr float half_root = 0.70710678118654752F;   // sqrt(1 / 2)
    constexpr float tanh_scale = 0.79788456080286536F;  // sqrt(2 / pi)
    switch (kind) {
        case ActivationKind::silu: return x / (1.0F + expf(-x));
        case ActivationKind::gelu: return 0.5F * x * (1.0F + erff(x * half_root));
        case ActivationKind::gelu_tanh: return 0.5F * x * (1.0F + tanhf(tanh_scale * (x + 0.044715F * x * x * x)));
        case ActivationKind::relu: return x < 0.0F ? 0.0F : x;  // NaN stays
    }
    return x;
}

template <class Out>
__global__ void activation(ActivationTask task) {
    const std::int64_t row = block().x;
    const auto* const in = static_cast<const float*>(task.in.data) + row * task.in.stride;
    auto* const out = static_cast<Out*>(task.out.data) + row * task.out.stride;
    store_row(out, task.width, shared_memory<RowScratch>(), [&](int i) {
        const float x = activate(task.kind, in[i]);
        return task.gated ? x * in[task.width + i] : x;
    });
}

}  // namespace

void run_activation(const ActivationTask& task, cudaStream_t stream) {
    const Launch how{
        .blocks = {task.rows}, .threads = threads_for(task.width, threads_most), .shared_bytes = sizeof(RowScratch), .stream = stream};
    if (task.out.format == Format::float32) {
        launch(activation<float>, how, task);
    } else if (task.out.format == Format::fp8_rows) {
        launch(activation<Fp8>, how, task);
    } else {
        launch(activation<Bfloat16>, how, task);
    }
}

}  // namespace lorry::kernels::cuda
