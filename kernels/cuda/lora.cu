// The low-rank updates of all row groups: shrink computes A x for every rank of a group's adapter, expand adds B (A x) to one slice of the
// outputs. One launch each for all adapters and ranks; sums run in an order that depends on the sizes alone, without atomics.
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"

namespace lorry::kernels::cuda {

namespace {

constexpr int threads = 128;
constexpr int warps = threads / warp_size;
constexpr int ranks_per_block = 2 * warps;
constexpr int rows_max = lora_piece_rows;

// A warp per rank: its lanes share the input features and all rows of the piece.
template <class T>
__global__ void __launch_bounds__(threads) shrink(LoraTask task) {
    const LoraTable piece = task.shrink[block().x];
    const auto* const in = static_cast<const T*>(task.in.data) + piece.row_begin * task.in.stride;
    for (int i = warp(); i < ranks_per_block; i += warps) {
        const int rank = block().y * ranks_per_block + i;
        if (rank >= piece.rank_sum) return;
        const auto* const a = static_cast<const T*>(piece.a) + static_cast<std::int64_t>(rank) * task.in_features;
        float sums[rows_max] = {};
        for (int k = lane(); k < task.in_features; k += warp_size) {
            const float weight = load(a + k);
#pragma unroll
            for (int row = 0; row < rows_max; ++row) {
                if (row < piece.row_count) sums[row] = fmaf(load(in + row * task.in.stride + k), weight, sums[row]);
            }
        }
#pragma unroll
        for (int row = 0; row < rows_max; ++row) {
            if (row >= piece.row_count) break;
            const float sum = warp_sum(sums[row]);
            if (lane() == 0) task.scratch[static_cast<std::int64_t>(piece.row_begin + row) * task.rank_sum_max + rank] = sum;
        }
    }
}

// A thread per output.
template <class T>
__global__ void __launch_bounds__(threads) expand(LoraTask task) {
    const LoraTable piece = task.expand[block().x];
    const int output = block().y * threads + thread_in_block();
    if (output >= piece.out_features) return;
    const auto* const b = static_cast<const T*>(piece.b) + output;
    const float* const shrunk = task.scratch + static_cast<std::int64_t>(piece.row_begin) * task.rank_sum_max + piece.rank_begin;
    float sums[rows_max] = {};
    for (int rank = 0; rank < piece.rank; ++rank) {
        const float weight = load(b + static_cast<std::int64_t>(rank) * piece.out_features);
#pragma unroll
        for (int row = 0; row < rows_max; ++row) {
            if (row < piece.row_count)
                sums[row] = fmaf(shrunk[static_cast<std::int64_t>(row) * task.rank_sum_max + rank], weight, sums[row]);
        }
    }
    auto* const out = static_cast<float*>(task.out.data) + piece.row_begin * task.out.stride + piece.out_begin + output;
#pragma unroll
    for (int row = 0; row < rows_max; ++row) {
        if (row < piece.row_count) out[row * task.out.stride] += sums[row];
    }
}

template <class T>
void run(const LoraTask& task, cudaStream_t stream) {
    launch(shrink<T>,
           {.blocks = {task.shrink_count, static_cast<int>(ceil_div(task.rank_sum_max, ranks_per_block))},
            .threads = threads,
            .shared_bytes = 0,
            .stream = stream},
           task);
    launch(expand<T>,
           {.blocks = {task.expand_count, static_cast<int>(ceil_div(task.out_features_max, threads))},
            .threads = threads,
            .shared_bytes = 0,
            .stream = stream},
           task);
}

}  // namespace

void run_lora(const LoraTask& task, cudaStream_t stream) {
    if (task.weights == Format::float32) {
        run<float>(task, stream);
    } else {
        run<Bfloat16>(task, stream);
    }
}

}  // namespace lorry::kernels::cuda
