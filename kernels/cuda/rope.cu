// Norms of query and key heads, rotation, and keys and values into the cache. A block per row, a warp per head.
#include <type_traits>

#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"

namespace lorry::kernels::cuda {

namespace {

constexpr int threads = 128;

// RMSNorm of one head in place.
__device__ void normalize(float* head, int head_dim, const float* weight, float epsilon) {
    float squares = 0.0F;
    for (int i = lane(); i < head_dim; i += warp_size) squares = fmaf(head[i], head[i], squares);
    const float factor = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(head_dim) + epsilon);
    for (int i = lane(); i < head_dim; i += warp_size) head[i] = head[i] * factor * weight[i];
}

// Rotates the pairs (i, i + head_dim / 2) of one head in place.
__device__ void rotate(float* head, int head_dim, const float* cosines) {
    const int half = head_dim / 2;
    for (int i = lane(); i < half; i += warp_size) {
        const float x = head[i];
        const float y = head[half + i];
        const float cosine = cosines[i];
        const float sine = cosines[half + i];
        head[i] = x * cosine - y * sine;
        head[half + i] = y * cosine + x * sine;
    }
}

// One head's key or value into its token's place `slot` of a block; by all lanes of a warp.
template <class T>
__device__ void store_head(const KvLayer& cache, std::byte* block_head, int slot, const float* head, int head_dim) {
    T* const to = reinterpret_cast<T*>(block_head) + slot * cache.padded_head_dim;
    float inverse = 1.0F;
    if constexpr (std::is_same_v<T, Fp8>) {
        std::uint32_t largest = 0;
        for (int d = lane(); d < head_dim; d += warp_size) largest = larger(largest, magnitude_bits(head[d]));
        const float scale = fp8_scale(warp_largest(largest));
        inverse = 1.0F / scale;
        // A score of minus infinity would hide a key that is none.
        float* const to_scale = reinterpret_cast<float*>(block_head + kv_scales_offset(cache.padded_head_dim)) + slot;
        if (lane() == 0) *to_scale = isfinite(scale) ? scale : NAN;
    }
    for (int d = lane(); d < cache.padded_head_dim; d += warp_size) store(to + d, d < head_dim ? head[d] * inverse : 0.0F);
}

template <class T>
__global__ void rope(RopeTask task) {
    const std::int64_t row = block().x;
    if (task.block_of_row[row] < 0) return;
    auto* const qkv = static_cast<float*>(task.qkv.data) + row * task.qkv.stride;
    const float* const cosines = task.table == nullptr ? nullptr : task.table + task.table_row[row] * task.table_stride;
    const KvLayer& cache = task.cache;
    std::byte* const keys = cache.data + task.block_of_row[row] * (2 * cache.kv_heads * cache.head_bytes);
    for (int i = warp(); i < task.heads + 2 * cache.kv_heads; i += threads / warp_size) {
        float* const head = qkv + static_cast<std::int64_t>(i) * task.head_dim;
        const bool is_query = i < task.heads;
        const bool is_key = !is_query && i < task.heads + cache.kv_heads;
        const float* const weight = is_query ? task.q_norm : is_key ? task.k_norm : nullptr;
        if (weight != nullptr) {
            normalize(head, task.head_dim, weight, task.epsilon);
            warp_barrier();
        }
        if (cosines != nullptr && (is_query || is_key)) {
            rotate(head, task.head_dim, cosines);
            warp_barrier();
        }
        if (is_query) continue;
        // Keys of all kv heads stand before their values, as in qkv.
        store_head<T>(cache, keys + (i - task.heads) * cache.head_bytes, task.slot_of_row[row], head, task.head_dim);
    }
}

}  // namespace

void run_rope(const RopeTask& task, cudaStream_t stream) {
    const Launch how{.blocks = {task.rows}, .threads = threads, .shared_bytes = 0, .stream = stream};
    if (task.cache.format == Format::float32) {
        launch(rope<float>, how, task);
    } else if (task.cache.format == Format::fp8_rows) {
        launch(rope<Fp8>, how, task);
    } else {
        launch(rope<Bfloat16>, how, task);
    }
}

}  // namespace lorry::kernels::cuda
