// What only moves, adds or converts rows: embedding, the rows that sample, biases of row groups, sums and biases after a matmul, fp8 and
// back. A block per row, but a thread for its scale.
#include <type_traits>

#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row.h"

namespace lorry::kernels::cuda {

namespace {

constexpr int threads_most = row_threads_max;

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
    if constexpr (std::is_same_v<T, Fp8>) {
        if (thread_in_block() == 0) *scale_of(out, task.columns) = *scale_of(in, task.columns);
    }
}

__global__ void quantize(QuantizeTask task) {
    auto& scratch = shared_memory<RowScratch>();
    auto* const codes = static_cast<Fp8*>(task.rows.data) + block().x * task.rows.stride;
    const auto* const wide = reinterpret_cast<const float*>(codes);
    std::uint32_t largest = 0;
    for (int i = thread_in_block(); i < task.columns; i += block_threads()) largest = larger(largest, magnitude_bits(wide[i]));
    const float scale = fp8_scale(block_largest(largest, scratch.largest));
    const float inverse = 1.0F / scale;
    for (int begin = 0; begin < task.columns; begin += block_threads()) {
        const int i = begin + thread_in_block();
        const float x = i < task.columns ? wide[i] : 0.0F;
        barrier();  // what is written next lies where this round and those before it have read
        if (i < task.columns) codes[i] = to_fp8(x * inverse);
    }
    if (thread_in_block() == 0) *scale_of(codes, task.columns) = scale;
}

__global__ void gather_scales(GatherScalesTask task) {
    const std::int64_t row = block().x * block_threads() + thread_in_block();
    if (row < task.row_count) task.scales[row] = *scale_of(static_cast<const Fp8*>(task.rows.data) + row * task.rows.stride, task.columns);
}

template <class T>
__global__ void widen_rows(WidenTask task) {
    const std::int64_t row = block().x;
    auto* const out = static_cast<T*>(task.out.data) + row * task.out.stride;
    const auto* const in = static_cast<const Fp8*>(task.in.data) + row * task.in.stride;
    const float scale = *scale_of(in, task.columns);
    for (int i = thread_in_block(); i < task.columns; i += block_threads()) store(out + i, float_of(in[i]) * scale);
}

__global__ void group_bias(GroupBiasTask task) {
    const BiasTable group = task.groups[block().x];
    for (std::int64_t row = group.row_begin; row < group.row_begin + group.row_count; ++row) {
        auto* const out = static_cast<float*>(task.out.data) + row * task.out.stride;
        for (int i = thread_in_block(); i < task.columns; i += block_threads()) out[i] += group.bias[i];
    }
}

__global__ void add_sums(AddSumsTask task) {
    const std::int64_t row = block().x;
    auto* const out = static_cast<float*>(task.out.data) + row * task.out.stride;
    const auto* const sums = task.sums.data == nullptr ? nullptr : static_cast<const float*>(task.sums.data) + row * task.sums.stride;
    for (int i = thread_in_block(); i < task.columns; i += block_threads()) {
        float x = sums == nullptr ? out[i] : task.accumulate ? out[i] + sums[i] : sums[i];
        if (task.bias != nullptr) x += task.bias[i];
        out[i] = x;
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
    } else if (task.out.format == Format::fp8_rows) {
        launch(gather<Fp8>, how, task);
    } else {
        launch(gather<Bfloat16>, how, task);
    }
}

void run_quantize(const QuantizeTask& task, cudaStream_t stream) {
    launch(quantize,
           {.blocks = {task.row_count},
            .threads = threads_for(task.columns, threads_most),
            .shared_bytes = sizeof(RowScratch),
            .stream = stream},
           task);
}

void run_gather_scales(const GatherScalesTask& task, cudaStream_t stream) {
    const int threads = threads_for(task.row_count, threads_most);
    launch(gather_scales,
           {.blocks = {static_cast<int>(ceil_div(task.row_count, threads))}, .threads = threads, .shared_bytes = 0, .stream = stream},
           task);
}

void run_widen(const WidenTask& task, cudaStream_t stream) {
    const Launch how{.blocks = {task.rows}, .threads = threads_for(task.columns, threads_most), .shared_bytes = 0, .stream = stream};
    if (task.out.format == Format::float32) {
        launch(widen_rows<float>, how, task);
    } else {
        launch(widen_rows<Bfloat16>, how, task);
    }
}

void run_group_bias(const GroupBiasTask& task, cudaStream_t stream) {
    launch(group_bias,
           {.blocks = {task.group_count}, .threads = threads_for(task.columns, threads_most), .shared_bytes = 0, .stream = stream}, task);
}

void run_add_sums(const AddSumsTask& task, cudaStream_t stream) {
    launch(add_sums, {.blocks = {task.rows}, .threads = threads_for(task.columns, threads_most), .shared_bytes = 0, .stream = stream},
           task);
}

}  // namespace lorry::kernels::cuda
