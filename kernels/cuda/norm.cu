// RMSNorm and LayerNorm of float32 rows. A block per row, sums in an order that depends on the row's width alone.
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row.h"

namespace lorry::kernels::cuda {

namespace {

constexpr int threads_most = row_threads_max;
struct Shared {
    float sums[threads_most / warp_size];
    RowScratch row;
};

template <class Out>
__global__ void norm(NormTask task) {
    auto& shared = shared_memory<Shared>();
    const std::int64_t row = block().x;
    const auto* const in = static_cast<const float*>(task.in.data) + row * task.in.stride;
    auto* const out = static_cast<Out*>(task.out.data) + row * task.out.stride;
    const auto columns = static_cast<float>(task.columns);

    float mean = 0.0F;
    if (task.subtract_mean) {
        float sum = 0.0F;
        for (int i = thread_in_block(); i < task.columns; i += block_threads()) sum += in[i];
        mean = block_sum(sum, shared.sums) / columns;
    }
    float squares = 0.0F;
    for (int i = thread_in_block(); i < task.columns; i += block_threads()) squares = fmaf(in[i] - mean, in[i] - mean, squares);
    const float factor = 1.0F / sqrtf(block_sum(squares, shared.sums) / columns + task.epsilon);
    store_row(out, task.columns, shared.row, [&](int i) {
        const float scaled = (in[i] - mean) * factor * task.weight[i];
        return task.bias == nullptr ? scaled : scaled + task.bias[i];
    });
}

}  // namespace

void run_norm(const NormTask& task, cudaStream_t stream) {
    const Launch how{
        .blocks = {task.rows}, .threads = threads_for(task.columns, threads_most), .shared_bytes = sizeof(Shared), .stream = stream};
    if (task.out.format == Format::float32) {
        launch(norm<float>, how, task);
    } else if (task.out.format == Format::fp8_rows) {
        launch(norm<Fp8>, how, task);
    } else {
        launch(norm<Bfloat16>, how, task);
    }
}

}  // namespace lorry::kernels::cuda
