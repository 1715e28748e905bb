// Kernels that only move, add or convert rows: embedding, gathering the rows that sample, biases of row groups, sums and biases after a
// matmul, and widening fp8. Several blocks per row. Launched by graphs.cpp, library_matmul.cpp and tuner.cpp.
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row.h"

namespace lorry::kernels::cuda {

namespace {

constexpr int threads_most = 256;  // of blocks that do not process rows in fours

template <class T, bool aligned>
__global__ void embed(EmbedTask task) {
    const std::int64_t row = block().x;
    const int i = part_column();
    if (i >= task.hidden) return;
    const auto* const token = static_cast<const T*>(task.tokens.data) + task.token_of_row[row] * task.tokens.stride;
    Floats x = load_four<aligned>(token, i, task.hidden);
    if (task.positions.data != nullptr) {
        const auto* const position = static_cast<const T*>(task.positions.data) + task.position_of_row[row] * task.positions.stride;
        const Floats more = load_four<aligned>(position, i, task.hidden);
        for (int k = 0; k < row_four; ++k) x.at[k] += more.at[k];
    }
    store_four<aligned>(static_cast<float*>(task.out.data) + row * task.out.stride, i, task.hidden, x);
}

// A row is `units` Units; fp8 rows also have a scale.
template <class Unit>
__global__ void gather(GatherTask task, int units) {
    const std::int64_t row = block().x;
    const int i = block().y * block_threads() + thread_in_block();
    if (i == 0 && task.in.format == Format::fp8_rows) task.out.scales[row] = task.in.scales[task.row_of[row]];
    if (i >= units) return;
    const auto row_units = [](const View& rows) { return static_cast<std::int64_t>(rows.row_bytes() / sizeof(Unit)); };
    const auto* const in = static_cast<const Unit*>(task.in.data) + task.row_of[row] * row_units(task.in);
    store_whole(static_cast<Unit*>(task.out.data) + row * row_units(task.out) + i, load_whole(in + i));
}

template <class T, bool aligned>
__global__ void widen_rows(WidenTask task) {
    const std::int64_t row = block().x;
    const int i = part_column();
    if (i >= task.columns) return;
    const auto* const in = static_cast<const Fp8*>(task.in.data) + row * task.in.stride;
    const float scale = task.in.scales[row];
    Floats x = load_four<aligned>(in, i, task.columns);
    for (int k = 0; k < row_four; ++k) x.at[k] *= scale;
    store_four<aligned>(static_cast<T*>(task.out.data) + row * task.out.stride, i, task.columns, x);
}

// Number of blocks that share the rows of a group.
constexpr int group_bias_blocks = 16;

__global__ void group_bias(GroupBiasTask task) {
    const BiasTable group = task.groups[block().x];
    const int i = block().y * block_threads() + thread_in_block();
    if (i >= task.columns) return;
    auto* const out = static_cast<float*>(task.out.data) + group.row_begin * task.out.stride + i;
    const float scale = group.scale != nullptr ? group.scale[i] : 1.0F;
    const float bias = group.bias != nullptr ? group.bias[i] : 0.0F;
    for (int row = block().z; row < group.row_count; row += grid().z) {
        float& to = out[row * task.out.stride];
        to = to * scale + bias;
    }
}

template <bool aligned>
__global__ void add_sums(AddSumsTask task) {
    const std::int64_t row = block().x;
    const int i = part_column();
    if (i >= task.columns) return;
    auto* const out = static_cast<float*>(task.out.data) + row * task.out.stride;
    const auto* const sums = task.sums.data == nullptr ? out : static_cast<const float*>(task.sums.data) + row * task.sums.stride;
    Floats x = load_four<aligned>(sums, i, task.columns);
    if (task.bias != nullptr) {
        const Floats bias = load_four<aligned>(task.bias, i, task.columns);
        for (int k = 0; k < row_four; ++k) x.at[k] += bias.at[k];
    }
    store_four<aligned>(out, i, task.columns, x);
}

// A launch whose blocks process parts of rows.
Launch by_parts(int rows, int columns, cudaStream_t stream) {
    const RowParts parts = row_parts(columns);
    return {.blocks = {rows, parts.blocks}, .threads = parts.threads, .shared_bytes = 0, .stream = stream};
}

}  // namespace

void run_embed(const EmbedTask& task, cudaStream_t stream) {
    const bool are_whole = are_aligned(task.hidden, task.out, task.tokens, task.positions);
    choose_kernel<float, Bfloat16>(task.tokens.format, are_whole, [&](auto token, auto aligned) {
        launch(embed<decltype(token), aligned.value>, by_parts(task.rows, task.hidden, stream), task);
    });
}

void run_gather(const GatherTask& task, cudaStream_t stream) {
    const std::size_t bytes = static_cast<std::size_t>(task.columns) * task.in.element_bytes();
    const auto by_units = [&]<class Unit>(Unit) {
        const auto units = static_cast<int>(bytes / sizeof(Unit));
        const int threads = threads_for(units, threads_most);
        const Blocks blocks{task.rows, static_cast<int>(ceil_div(units, threads))};
        launch(gather<Unit>, {.blocks = blocks, .threads = threads, .shared_bytes = 0, .stream = stream}, task, units);
    };
    // All addresses and lengths are multiples of this power of two.
    const std::size_t all = reinterpret_cast<std::uintptr_t>(task.in.data) | reinterpret_cast<std::uintptr_t>(task.out.data) |
                            task.in.row_bytes() | task.out.row_bytes() | bytes;
    using Four32 = Four<std::uint32_t>;
    if (all % sizeof(Four32) == 0) return by_units(Four32{});
    if (all % sizeof(std::uint32_t) == 0) return by_units(std::uint32_t{});
    if (all % sizeof(std::uint16_t) == 0) return by_units(std::uint16_t{});
    by_units(std::uint8_t{});
}

void run_widen(const WidenTask& task, cudaStream_t stream) {
    choose_kernel<float, Bfloat16>(task.out.format, are_aligned(task.columns, task.out, task.in), [&](auto out, auto aligned) {
        launch(widen_rows<decltype(out), aligned.value>, by_parts(task.rows, task.columns, stream), task);
    });
}

void run_group_bias(const GroupBiasTask& task, cudaStream_t stream) {
    const int threads = threads_for(task.columns, threads_most);
    const Blocks blocks{task.group_count, static_cast<int>(ceil_div(task.columns, threads)), group_bias_blocks};
    launch(group_bias, {.blocks = blocks, .threads = threads, .shared_bytes = 0, .stream = stream}, task);
}

void run_add_sums(const AddSumsTask& task, cudaStream_t stream) {
    const Launch how = by_parts(task.rows, task.columns, stream);
    if (are_aligned(task.columns, task.out, task.sums, task.bias)) {
        launch(add_sums<true>, how, task);
    } else {
        launch(add_sums<false>, how, task);
    }
}

}  // namespace lorry::kernels::cuda
