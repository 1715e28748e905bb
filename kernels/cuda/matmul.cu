// out (+)= in weight' + bias. Every output is one sum over the input features, in the same order for any number of rows, so a row's result
// does not depend on the batch. bfloat16 and fp8 run on tensor cores; float32, which exists for strict parity, is one chain per output.
// Launched by graphs.cpp and tuner.cpp.
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"

namespace lorry::kernels::cuda {

namespace {

constexpr int tile = 64;  // rows and outputs of a block
constexpr int warps = 4;  // each computes a quarter of the tile
constexpr int threads = warps * warp_size;

// The layout of rows of T in shared memory, in elements.
constexpr int chunk_bytes = 16;  // copied at once
constexpr int chunks = 4;        // per row
template <class T>
constexpr int chunk = chunk_bytes / static_cast<int>(sizeof(T));
template <class T>
constexpr int depth = chunks* chunk_bytes / static_cast<int>(sizeof(T));  // input features of a step
template <class T>
constexpr int stride = depth<T> + chunk<T>;  // rows of 80 bytes, so that ldmatrix reads them from different banks
static_assert(in_features_multiple % depth<Bfloat16> == 0 && in_features_multiple % depth<Fp8> == 0);

template <class T>
using Tile = T[tile][stride<T>];
template <class T>
struct Shared {
    alignas(16) Tile<T> in[2];
    alignas(16) Tile<T> weight[2];
};

// Loads in[row, k …] of the block's tile in chunks, with zeros beyond the matrix. `aligned`: chunks start at multiples of 16 bytes.
template <bool aligned, class T>
__device__ void load_in(const MatmulTask& task, Tile<T>& to, int row_begin, int k_begin) {
    const auto* const in = static_cast<const T*>(task.in.data);
    for (int i = thread_in_block(); i < tile * chunks; i += threads) {
        const int row = i / chunks;
        const int k = i % chunks * chunk<T>;
        const bool row_exists = row_begin + row < task.rows;
        const T* const from = in + (row_begin + row) * task.in.stride + k_begin + k;
        if constexpr (aligned) {
            const bool wanted = row_exists && k_begin + k < task.in_features;
            copy_async(&to[row][k], wanted ? from : in, wanted);
        } else {
            for (int j = 0; j < chunk<T>; ++j) to[row][k + j] = row_exists && k_begin + k + j < task.in_features ? from[j] : T{};
        }
    }
}

template <class T>
__device__ void load_weight(const MatmulTask& task, Tile<T>& to, int out_begin, int k_begin) {
    const auto* const weight = static_cast<const T*>(task.weight.data);
    for (int i = thread_in_block(); i < tile * chunks; i += threads) {
        const int out = i / chunks;
        const int k = i % chunks * chunk<T>;
        const bool wanted = out_begin + out < task.out_features;
        copy_async(&to[out][k], wanted ? weight + (out_begin + out) * task.weight.stride + k_begin + k : weight, wanted);
    }
}

__device__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], Bfloat16) { multiply_add(d, a, b); }
__device__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], Fp8) { multiply_add_fp8(d, a, b); }

// d += one step of the tile, for the warp's 32 rows from row_begin and 32 outputs from out_begin. Fragments of 16 rows are two chunks deep.
template <class T>
__device__ void multiply_step(const Tile<T>& in, const Tile<T>& weight, int row_begin, int out_begin, float (&d)[2][4][4]) {
    for (int k = 0; k < depth<T>; k += 2 * chunk<T>) {
        std::uint32_t a[2][4];
        for (int m = 0; m < 2; ++m) load_matrices(a[m], &in[row_begin + m * 16 + lane() % 16][k + lane() / 16 * chunk<T>]);
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
            std::uint32_t b[4];
            load_matrices(b, &weight[out_begin + n * 8 + lane() / 16 * 8 + lane() % 8][k + lane() / 8 % 2 * chunk<T>]);
            for (int m = 0; m < 2; ++m) {
                multiply(d[m][n], a[m], {b[0], b[1]}, T{});
                multiply(d[m][n + 1], a[m], {b[2], b[3]}, T{});
            }
        }
    }
}

// The factor for the sum of elements.
__device__ float scale_of_sum(const MatmulTask&, std::int64_t, int, Bfloat16) { return 1.0F; }
__device__ float scale_of_sum(const MatmulTask& task, std::int64_t row, int output, Fp8) {
    return task.in.scales[row] * task.weight_scales[output];
}

template <bool aligned, class T>
__global__ void __launch_bounds__(threads) matmul_tiles(MatmulTask task) {
    auto& shared = shared_memory<Shared<T>>();
    const int out_block = block().x * tile;
    const int row_block = block().y * tile;
    const int row_begin = warp() / 2 * 32;
    const int out_begin = warp() % 2 * 32;
    const int steps = (task.in_features + depth<T> - 1) / depth<T>;
    float d[2][4][4] = {};

    load_in<aligned, T>(task, shared.in[0], row_block, 0);
    load_weight<T>(task, shared.weight[0], out_block, 0);
    copy_async_commit();
    for (int step = 0; step < steps; ++step) {
        // An empty group at the end keeps the number of groups the same in every step.
        if (step + 1 < steps) {
            load_in<aligned, T>(task, shared.in[(step + 1) % 2], row_block, (step + 1) * depth<T>);
            load_weight<T>(task, shared.weight[(step + 1) % 2], out_block, (step + 1) * depth<T>);
        }
        copy_async_commit();
        copy_async_wait<1>();
        barrier();
        multiply_step<T>(shared.in[step % 2], shared.weight[step % 2], row_begin, out_begin, d);
        barrier();  // the next step's loads overwrite what was read here
    }

    auto* const out = static_cast<float*>(task.out.data);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const std::int64_t row = row_block + row_begin + m * 16 + i / 2 * 8 + lane() / 4;
                const int output = out_block + out_begin + n * 8 + lane() % 4 * 2 + i % 2;
                if (row >= task.rows || output >= task.out_features) continue;
                float* const to = out + row * task.out.stride + output;
                float sum = d[m][n][i] * scale_of_sum(task, row, output, T{});
                if (task.bias != nullptr) sum += task.bias[output];
                *to = task.accumulate ? *to + sum : sum;
            }
        }
    }
}

__global__ void matmul_float32(MatmulTask task) {
    const int output = block().x * block_threads() + thread_in_block();
    if (output >= task.out_features) return;
    const std::int64_t row = block().y;
    const auto* const in = static_cast<const float*>(task.in.data) + row * task.in.stride;
    const auto* const weight = static_cast<const float*>(task.weight.data) + output * task.weight.stride;
    float sum = 0.0F;
    for (int k = 0; k < task.in_features; ++k) sum = fmaf(in[k], weight[k], sum);
    if (task.bias != nullptr) sum += task.bias[output];
    auto* const to = static_cast<float*>(task.out.data) + row * task.out.stride + output;
    *to = task.accumulate ? *to + sum : sum;
}

// The rows of one launch: the limit of a grid's second dimension.
constexpr int grid_rows_max = 65535;

void run_float32(MatmulTask task, cudaStream_t stream) {
    const int width = threads_for(task.out_features, threads);
    const int rows = task.rows;
    auto* const in = static_cast<float*>(task.in.data);
    auto* const out = static_cast<float*>(task.out.data);
    for (int begin = 0; begin < rows; begin += grid_rows_max) {
        task.in.data = in + begin * task.in.stride;
        task.out.data = out + begin * task.out.stride;
        task.rows = rows - begin < grid_rows_max ? rows - begin : grid_rows_max;
        const Blocks blocks{static_cast<int>(ceil_div(task.out_features, width)), task.rows};
        launch(matmul_float32, {.blocks = blocks, .threads = width, .shared_bytes = 0, .stream = stream}, task);
    }
}

template <class T>
void run_tiles(const MatmulTask& task, cudaStream_t stream) {
    const bool aligned =
        task.in_features % chunk<T> == 0 && task.in.stride % chunk<T> == 0 && reinterpret_cast<std::uintptr_t>(task.in.data) % 16 == 0;
    const Launch how{.blocks = {static_cast<int>(ceil_div(task.out_features, tile)), static_cast<int>(ceil_div(task.rows, tile))},
                     .threads = threads,
                     .shared_bytes = sizeof(Shared<T>),
                     .stream = stream};
    if (aligned) {
        launch(matmul_tiles<true, T>, how, task);
    } else {
        launch(matmul_tiles<false, T>, how, task);
    }
}

}  // namespace

void run_matmul(const MatmulTask& task, cudaStream_t stream) {
    if (task.in.format == Format::float32) return run_float32(task, stream);
    if (task.in.format == Format::fp8_rows) return run_tiles<Fp8>(task, stream);
    run_tiles<Bfloat16>(task, stream);
}

}  // namespace lorry::kernels::cuda
