// What attention's kernels share: which tokens a piece's rows see, where tokens and results are stored, how sums of weighted values are
// added, and when results are converted to fp8. Included by attention.cu.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/joint_rows.h"
#include "kernels/cuda/kernels.h"

namespace lorry::kernels::cuda {

constexpr int page = static_cast<int>(kv_block_size);
constexpr int span_pages = static_cast<int>(kv_span) / page;
constexpr int head_dim_max = 256;
constexpr float nothing = -INFINITY;
constexpr float log2_e = 1.44269504088896341F;

// From a product of a query and a key to its score, in units of log 2.
struct ScoreMap {
    float scale;
    bool has_cap;
    float cap;

    __device__ explicit ScoreMap(const AttentionTask& task) : scale(task.scale * log2_e), has_cap(task.has_cap), cap(task.cap * log2_e) {}
    __device__ float operator()(float product) const { return has_cap ? cap * tanhf(product * scale / cap) : product * scale; }
};

// The largest score of a sum, in units of log 2, and the sum of its weights 2^(score - largest).
struct Softmax {
    float largest = nothing;
    float sum = 0.0F;

    // The factor for weighted values at the end. Dividing each would take more registers than a thread has.
    __device__ float inverse() const { return 1.0F / sum; }
};
// The factors for each side's sums when they are added; zero for an empty side.
struct Factors {
    float largest;
    float first;
    float second;
};
__device__ inline Factors factors(float first, float second) {
    const float largest = larger(first, second);
    return {largest, first == nothing ? 0.0F : exp2f(first - largest), second == nothing ? 0.0F : exp2f(second - largest)};
}

// The pieces of a launch. A block computes every grid().y-th of them for kv head block().x.
struct Pieces {
    const AttentionPiece* first;
    int count;
};
__device__ inline Pieces pieces_of(const AttentionTask& task, bool wide) {
    return wide ? Pieces{task.work->wide, task.work->wide_count} : Pieces{task.work->narrow, task.work->narrow_count};
}

// The part of the context that a piece's rows see.
struct Sight {
    int group;       // query heads per kv head
    int page_begin;  // pages that any row of the piece sees
    int page_end;
    int token_end;  // the number of tokens that were written
};
__device__ inline int position_of(const AttentionPiece& piece, int group, int packed) { return piece.position + packed / group; }
__device__ inline Sight sight_of(const AttentionTask& task, const AttentionPiece& piece) {
    const int group = task.heads / task.cache.kv_heads;
    const int first = position_of(piece, group, piece.packed_begin);
    const int last = position_of(piece, group, piece.packed_begin + piece.packed_count - 1);
    const int first_seen = first - task.window + 1 > 0 ? first - task.window + 1 : 0;
    const int begin = piece.span_begin * span_pages;
    const int end = piece.span_end * span_pages;
    return {group, first_seen / page > begin ? first_seen / page : begin, last / page + 1 < end ? last / page + 1 : end, last + 1};
}
__device__ inline bool is_seen(int token, int position, int window) { return token <= position && token > position - window; }

// The positions of the running warp's rows. The lane's own two are negative if it has no row.
struct WarpRows {
    int first;
    int last;  // less than the first: the warp has no rows
    int own[2];

    __device__ bool see_any_of(int token_begin, int window) const { return token_begin <= last && token_begin + page > first - window + 1; }
    __device__ bool see_all_of(int token_begin, int window) const { return token_begin + page - 1 <= first && token_begin > last - window; }
};

// The blocks of a piece's pages.
__device__ inline const std::int32_t* blocks_of(const AttentionTask& task, const AttentionPiece& piece) {
    return task.work->blocks + piece.blocks_begin;
}
// The keys of one kv head in a block's page, and the distance from them to its values.
template <class T>
__device__ const T* keys_of(const AttentionTask& task, std::int64_t block_index, int kv_head) {
    return reinterpret_cast<const T*>(task.cache.data + block_index * task.cache.block_bytes + kv_head * task.cache.head_bytes);
}
template <class T>
__device__ std::int64_t values_after_keys(const AttentionTask& task) {
    return task.cache.kv_heads * task.cache.head_bytes / static_cast<std::int64_t>(sizeof(T));
}
__device__ inline const float* scales_of(const AttentionTask& task, const Fp8* head) {
    return reinterpret_cast<const float*>(head + kv_scales_offset(task.cache.padded_head_dim));
}

__device__ inline const float* query_of(const AttentionTask& task, const AttentionPiece& piece, int group, int packed, int kv_head) {
    const std::int64_t row = piece.row_begin + packed / group;
    const int head = kv_head * group + packed % group;
    return static_cast<const float*>(task.qkv.data) + row * task.qkv.stride + static_cast<std::int64_t>(head) * task.head_dim;
}

// The partial result in a slot: [padded_head_dim] weighted values, the largest score, the sum of weights.
__device__ inline float* partial_of(const AttentionTask& task, std::int64_t slot, int kv_head) {
    return task.work->workspace + (slot * task.cache.kv_heads + kv_head) * (task.cache.padded_head_dim + 2);
}

// Where the result of a packed row is stored: its row, and its first element in task.out.
struct ResultPlace {
    std::int64_t row;
    std::int64_t begin;
};
__device__ inline ResultPlace result_of(const AttentionTask& task, std::int32_t row_begin, int group, int packed, int kv_head) {
    const std::int64_t row = row_begin + packed / group;
    return {row, row * task.out.stride + static_cast<std::int64_t>(kv_head * group + packed % group) * task.head_dim};
}
__device__ inline void store_result(const View& out, std::int64_t place, float x) {
    if (out.format == Format::float32) {
        store(static_cast<float*>(out.data) + place, x);
    } else {
        store(static_cast<Bfloat16*>(out.data) + place, x);
    }
}

// Called by all threads of a block after it stored the results of a piece or a merge and noted the largest element of each.
template <int at_once, class Piece>
__device__ void quantize_results(const AttentionTask& task, const Piece& piece, int group, JointScratch& scratch) {
    static_assert(wide_rows(1) <= joint_rows_most && narrow_rows <= joint_rows_most);
    const int packed_end = piece.packed_begin + piece.packed_count;
    const int first = piece.packed_begin / group;
    const int count = (packed_end - 1) / group + 1 - first;
    // Other pieces may have parts of the first and the last row.
    quantize_whole_rows<at_once>(task.joint, piece.row_begin + first, count, scratch, [&](int i) {
        const int begin = (first + i) * group;
        const int end = begin + group;
        return (end < packed_end ? end : packed_end) - larger(begin, piece.packed_begin);
    });
}

}  // namespace lorry::kernels::cuda
