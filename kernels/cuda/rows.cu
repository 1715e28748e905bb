// What only moves or adds rows: embedding, the rows that sample, biases of row groups. A block per row.
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"

namespace lorry::kernels::cuda {

namespace {

constexpr int threads_most = 256;

template <class T>
__global__ void embed(EmbedTask task) {
    const std::int64_t row = block().x;
    auto* const out = static_cast<float*>(task.out.data) + row * task.out.stride;
    const auto* const token = static_cast<const T*>(task.tokens.data) + task.token_of_row[row] * task.tokens.stride;
    const auto* const position = task.positions.data == nullptr
                                     ? nullptr
                                     : static_cast<const T*>(task.positions.data) + task.position_of_row[row] * task.positions.stride;
    for (int i = thread_in_block(); i < task.hidden; i += block_threads()) {
        out[i] = position == nullptr ? load(token + i) : load(token + i) + load(position + i);
    }
}

template <class T>
__global__ void gather(GatherTask task) {
    const std::int64_t row = block().x;
    const std::int64_t from_row = task.row_of[row];
    auto* const out = static_cast<T*>(task.out.data) + row * task.out.stride;
    const auto* const in = static_cast<const T*>(task.in.data) + from_row * task.in.stride;
    for (int i = thread_in_block(); i < task.columns; i += block_threads()) out[i] = in[i];
}

__global__ void group_bias(GroupBiasTask task) {
    const BiasTable group = task.groups[block().x];
    for (std::int64_t row = group.row_begin; row < group.row_begin + group.row_count; ++row) {
        auto* const out = static_cast<float*>(task.out.data) + row * task.out.stride;
        for (int i = thread_in_block(); i < task.columns; i += block_threads()) out[i] += group.bias[i];
    }
}

}  // namespace

void run_embed(const EmbedTask& task, cudaStream_t stream) {
    const Launch how{.blocks = {task.rows}, .threads = threads_for(task.hidden, threads_most), .shared_bytes = 0, .stream = stream};
    if (task.tokens.format == Format::float32) {
        launch(embed<float>, how, task);
    } else {
        launch(embed<Bfloat16>, how, task);
    }
}

void run_gather(const GatherTask& task, cudaStream_t stream) {
    const Launch how{.blocks = {task.rows}, .threads = threads_for(task.columns, threads_most), .shared_bytes = 0, .stream = stream};
    if (task.out.format == Format::float32) {
        launch(gather<float>, how, task);
    } else {
        launch(gather<Bfloat16>, how, task);
    }
}

void run_group_bias(const GroupBiasTask& task, cudaStream_t stream) {
    launch(group_bias,
           {.blocks = {task.group_count}, .threads = threads_for(task.columns, threads_most), .shared_bytes = 0, .stream = stream}, task);
}

}  // namespace lorry::kernels::cuda
