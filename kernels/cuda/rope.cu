// Normalizes query and key heads, rotates them, and stores keys and values in the cache. One warp per head, which reads it once. Launched
// by graphs.cpp.
#include <type_traits>

#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"

namespace lorry::kernels::cuda {

namespace {

constexpr int threads = 128;
constexpr int heads_of_block = threads / warp_size;
constexpr int head_dim_max = 256;
constexpr int pairs_of_lane = head_dim_max / 2 / warp_size;

// A lane's share of a head: the pairs (i, half + i) for i = lane(), lane() + 32, …. Neighbours are in neighbouring lanes, so that a warp
// moves 128 bytes at once. Elements beyond the head are zero.
struct Pairs {
    float x[pairs_of_lane];
    float y[pairs_of_lane];
};

// Calls each(j, i) for the lane's pairs; pair j begins at i.
template <class Each>
__device__ void for_each_pair(int half, const Each& each) {
#pragma unroll
    for (int j = 0; j < pairs_of_lane; ++j) {
        const int i = lane() + j * warp_size;
        if (i < half) each(j, i);
    }
}

// RMSNorm of a head.
__device__ void normalize(Pairs& head, int head_dim, int half, const float* weight, float epsilon) {
    float squares = 0.0F;
    for_each_pair(half, [&](int j, int) { squares = fmaf(head.y[j], head.y[j], fmaf(head.x[j], head.x[j], squares)); });
    const float factor = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(head_dim) + epsilon);
    for_each_pair(half, [&](int j, int i) {
        head.x[j] = head.x[j] * factor * weight[i];
        if (half + i < head_dim) head.y[j] = head.y[j] * factor * weight[half + i];
    });
}

__device__ void rotate(Pairs& head, int half, const float* cosines) {
    for_each_pair(half, [&](int j, int i) {
        const float x = head.x[j];
        const float y = head.y[j];
        const float cosine = cosines[i];
        const float sine = cosines[half + i];
        head.x[j] = x * cosine - y * sine;
        head.y[j] = y * cosine + x * sine;
    });
}

// Stores one head's key or value in its token's place `slot` of a block; called by all lanes of a warp.
template <class T>
__device__ void store_head(const KvLayer& cache, std::byte* block_head, int slot, const Pairs& head, int head_dim, int half) {
    T* const to = reinterpret_cast<T*>(block_head) + slot * cache.padded_head_dim;
    float inverse = 1.0F;
    if constexpr (std::is_same_v<T, Fp8>) {
        std::uint32_t largest = 0;
        for_each_pair(half, [&](int j, int) { largest = larger(largest, larger(magnitude_bits(head.x[j]), magnitude_bits(head.y[j]))); });
        const float scale = fp8_scale(warp_largest(largest));
        inverse = 1.0F / scale;
        // A key that is not finite must show: a score of minus infinity would hide it.
        float* const to_scale = reinterpret_cast<float*>(block_head + kv_scales_offset(cache.padded_head_dim)) + slot;
        if (lane() == 0) *to_scale = isfinite(scale) ? scale : NAN;
    }
    for_each_pair(half, [&](int j, int i) {
        store(to + i, head.x[j] * inverse);
        if (half + i < head_dim) store(to + half + i, head.y[j] * inverse);
    });
    for (int d = head_dim + lane(); d < cache.padded_head_dim; d += warp_size) store(to + d, 0.0F);
}

template <class T>
__global__ void __launch_bounds__(threads) rope(RopeTask task) {
    const std::int64_t row = block().x;
    const KvLayer& cache = task.cache;
    const int index = block().y * heads_of_block + warp();
    if (task.block_of_row[row] < 0 || index >= task.heads + 2 * cache.kv_heads) return;
    const bool is_query = index < task.heads;
    const bool is_key = !is_query && index < task.heads + cache.kv_heads;
    const float* const weight = is_query ? task.q_norm : is_key ? task.k_norm : nullptr;
    const bool rotates = task.table != nullptr && (is_query || is_key);
    if (is_query && weight == nullptr && !rotates) return;

    const int half = (task.head_dim + 1) / 2;
    float* const from = static_cast<float*>(task.qkv.data) + row * task.qkv.stride + static_cast<std::int64_t>(index) * task.head_dim;
    Pairs head{};
    for_each_pair(half, [&](int j, int i) {
        head.x[j] = from[i];
        if (half + i < task.head_dim) head.y[j] = from[half + i];
    });
    if (weight != nullptr) normalize(head, task.head_dim, half, weight, task.epsilon);
    if (rotates) rotate(head, half, task.table + task.table_row[row] * task.table_stride);
    if (is_query) {
        for_each_pair(half, [&](int j, int i) {
            from[i] = head.x[j];
            if (half + i < task.head_dim) from[half + i] = head.y[j];
        });
        return;
    }
    // The keys of all kv heads precede their values, as in qkv.
    std::byte* const keys = cache.data + task.block_of_row[row] * cache.block_bytes;
    store_head<T>(cache, keys + (index - task.heads) * cache.head_bytes, task.slot_of_row[row], head, task.head_dim, half);
}

}  // namespace

void run_rope(const RopeTask& task, cudaStream_t stream) {
    const auto blocks = static_cast<int>(ceil_div(task.heads + 2 * task.cache.kv_heads, heads_of_block));
    const Launch how{.blocks = {task.rows, blocks}, .threads = threads, .shared_bytes = 0, .stream = stream};
    if (task.cache.format == Format::float32) {
        launch(rope<float>, how, task);
    } else if (task.cache.format == Format::fp8_rows) {
        launch(rope<Fp8>, how, task);
    } else {
        launch(rope<Bfloat16>, how, task);
    }
}

}  // namespace lorry::kernels::cuda
