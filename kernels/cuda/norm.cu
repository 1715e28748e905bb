// RMSNorm and LayerNorm of float32 rows, or only their conversion. One block per row, which reads it once; the order of sums depends only
// on the row's width. Launched by graphs.cpp.
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row.h"

namespace lorry::kernels::cuda {

namespace {

struct Shared {
    float sums[row_threads_max / warp_size];
    RowScratch row;
};

template <class Out, bool aligned>
__global__ void __launch_bounds__(row_threads_max) norm(NormTask task) {
    auto& shared = shared_memory<Shared>();
    const int columns = task.columns;
    const std::int64_t row = block().x;
    const auto* const in = static_cast<const float*>(task.in.data) + row * task.in.stride;
    const RowFours fours(columns, [&](int i) { return load_four<aligned>(in, i, columns); });

    if (task.kind == NormKind::none) return store_row<aligned, Out>(task.out, row, columns, fours, shared.row, Unchanged{});
    float mean = 0.0F;
    if (task.kind == NormKind::layer) {
        float sum = 0.0F;
        fours.for_each([&](int i, const Floats& x) {
            for (int k = 0; k < row_four; ++k) {
                if (has_column<aligned>(i + k, columns)) sum += x.at[k];
            }
        });
        mean = block_sum(sum, shared.sums) / static_cast<float>(columns);
    }
    float squares = 0.0F;
    fours.for_each([&](int i, const Floats& x) {
        for (int k = 0; k < row_four; ++k) {
            if (has_column<aligned>(i + k, columns)) squares = fmaf(x.at[k] - mean, x.at[k] - mean, squares);
        }
    });
    const float factor = 1.0F / sqrtf(block_sum(squares, shared.sums) / static_cast<float>(columns) + task.epsilon);
    store_row<aligned, Out>(task.out, row, columns, fours, shared.row, [&](int i, Floats x) {
        const Floats weight = load_four<aligned>(task.weight, i, columns);
        for (int k = 0; k < row_four; ++k) x.at[k] = (x.at[k] - mean) * factor * weight.at[k];
        if (task.bias == nullptr) return x;
        const Floats bias = load_four<aligned>(task.bias, i, columns);
        for (int k = 0; k < row_four; ++k) x.at[k] += bias.at[k];
        return x;
    });
}

}  // namespace

void run_norm(const NormTask& task, cudaStream_t stream) {
    const Launch how{.blocks = {task.rows}, .threads = row_threads(task.columns), .shared_bytes = sizeof(Shared), .stream = stream};
    const bool are_whole = are_aligned(task.columns, task.in, task.out, task.weight, task.bias);
    choose_kernel<float, Bfloat16, Fp8>(task.out.format, are_whole,
                                        [&](auto out, auto aligned) { launch(norm<decltype(out), aligned.value>, how, task); });
}

}  // namespace lorry::kernels::cuda
