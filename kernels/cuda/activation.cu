// Computes act(x) or act(gate) * up, and scales and caps rows. Each block processes part of a row, for fp8 a whole row. Launched by
// graphs.cpp.
#include <type_traits>

#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row.h"

namespace lorry::kernels::cuda {

namespace {

__device__ float activate(ActivationKind kind, float x) {
    constexpr float half_root = 0.70710678118654752F;   // sqrt(1 / 2)
    constexpr float tanh_scale = 0.79788456080286536F;  // sqrt(2 / pi)
    switch (kind) {
        case ActivationKind::silu: return x / (1.0F + expf(-x));
        case ActivationKind::gelu: return 0.5F * x * (1.0F + erff(x * half_root));
        case ActivationKind::gelu_tanh: return 0.5F * x * (1.0F + tanhf(tanh_scale * (x + 0.044715F * x * x * x)));
        case ActivationKind::relu: return x < 0.0F ? 0.0F : x;  // keeps NaN
        case ActivationKind::tanh: return tanhf(x);
    }
    return x;
}

// Columns [i, i + 4) of a row of the output.
template <bool aligned>
__device__ Floats activated(const ActivationTask& task, std::int64_t row, int i) {
    const auto* const in = static_cast<const float*>(task.in.data) + row * task.in.stride;
    Floats x = load_four<aligned>(in, i, task.width);
    Floats factor{{1.0F, 1.0F, 1.0F, 1.0F}};
    if (task.gated) factor = load_four<aligned>(in + task.width, i, task.width);
    for (int k = 0; k < row_four; ++k) x.at[k] = activate(task.kind, x.at[k]) * factor.at[k];
    return x;
}

template <class Out, bool aligned>
__global__ void activation(ActivationTask task) {
    const std::int64_t row = block().x;
    const int i = part_column();
    if (i >= task.width) return;
    store_four<aligned>(static_cast<Out*>(task.out.data) + row * task.out.stride, i, task.width, activated<aligned>(task, row, i));
}

// One block per row, because a row has one scale.
template <bool aligned>
__global__ void __launch_bounds__(row_threads_max) activation_fp8(ActivationTask task) {
    const std::int64_t row = block().x;
    const RowFours fours(task.width, [&](int i) { return activated<aligned>(task, row, i); });
    store_row<aligned, Fp8>(task.out, row, task.width, fours, shared_memory<RowScratch>(), Unchanged{});
}

template <bool aligned>
__global__ void scale(ScaleTask task) {
    const std::int64_t row = block().x;
    const int i = part_column();
    if (i >= task.columns) return;
    float* const out = static_cast<float*>(task.out.data) + row * task.out.stride;
    Floats x = load_four<aligned>(static_cast<const float*>(task.in.data) + row * task.in.stride, i, task.columns);
    for (int k = 0; k < row_four; ++k) x.at[k] = task.has_cap ? task.cap * tanhf(x.at[k] * task.scale / task.cap) : x.at[k] * task.scale;
    if (task.accumulate) {
        const Floats sum = load_four<aligned>(out, i, task.columns);
        for (int k = 0; k < row_four; ++k) x.at[k] += sum.at[k];
    }
    store_four<aligned>(out, i, task.columns, x);
}

}  // namespace

void run_scale(const ScaleTask& task, cudaStream_t stream) {
    const RowParts parts = row_parts(task.columns);
    const Launch by_parts{.blocks = {task.rows, parts.blocks}, .threads = parts.threads, .shared_bytes = 0, .stream = stream};
    choose_kernel<float>(task.out.format, are_aligned(task.columns, task.in, task.out),
                         [&](auto, auto aligned) { launch(scale<aligned.value>, by_parts, task); });
}

void run_activation(const ActivationTask& task, cudaStream_t stream) {
    const RowParts parts = row_parts(task.width);
    const Launch by_parts{.blocks = {task.rows, parts.blocks}, .threads = parts.threads, .shared_bytes = 0, .stream = stream};
    const Launch by_rows{.blocks = {task.rows}, .threads = row_threads(task.width), .shared_bytes = sizeof(RowScratch), .stream = stream};
    choose_kernel<float, Bfloat16, Fp8>(task.out.format, are_aligned(task.width, task.in, task.out), [&](auto out, auto aligned) {
        if constexpr (std::is_same_v<decltype(out), Fp8>) {
            launch(activation_fp8<aligned.value>, by_rows, task);
        } else {
            launch(activation<decltype(out), aligned.value>, by_parts, task);
        }
    });
}

}  // namespace lorry::kernels::cuda
