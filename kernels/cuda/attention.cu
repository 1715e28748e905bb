// Causal attention over the paged cache, one arithmetic for prefill, chunks and decoding. A context is cut into spans of kv_span tokens at
// fixed places; the softmax of a span is a sum of its own, and sums are merged in order of spans, whether one block walked them or many.
// So a row's result depends on its context alone. The method is FlashAttention's (Dao 2023) with split keys.
//
// bfloat16: tensor cores, 16 packed rows per warp (shapes.h); of heads wider than 128, two warps share the rows: each computes the scores
// of its half of the dimensions, they exchange and add them, and each adds up its half of the values. fp8: the same products, of elements
// that are widened on their way from shared memory to the tensor cores; a key's scale is multiplied to its score, a value's to its weight.
// float32: one warp per row.
#include <type_traits>

#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"

namespace lorry::kernels::cuda {

namespace {

constexpr int page = static_cast<int>(kv_block_size);
constexpr int span_pages = static_cast<int>(kv_span) / page;
constexpr int head_dim_max = 256;
constexpr float nothing = -INFINITY;
constexpr float log2_e = 1.44269504088896341F;

// The largest score of a sum, in units of log 2, and the sum of its weights 2^(score - largest).
struct Softmax {
    float largest = nothing;
    float sum = 0.0F;
};
// By what each side's sums are multiplied when they are added. Nothing plus nothing is nothing.
struct Factors {
    float largest;
    float first;
    float second;
};
__device__ Factors factors(float first, float second) {
    const float largest = larger(first, second);
    return {largest, first == nothing ? 0.0F : exp2f(first - largest), second == nothing ? 0.0F : exp2f(second - largest)};
}

// The pieces of a launch; a block takes every grid().x-th.
struct Pieces {
    const AttentionPiece* first;
    int count;
};
__device__ Pieces pieces_of(const AttentionTask& task, bool wide) {
    return wide ? Pieces{task.work->wide, task.work->wide_count} : Pieces{task.work->narrow, task.work->narrow_count};
}

// What the rows of a piece see of the context.
struct Sight {
    int group;       // query heads per kv head
    int page_begin;  // pages that any row of the piece sees
    int page_end;
    int token_end;  // tokens that were written
};
__device__ int position_of(const AttentionPiece& piece, int group, int packed) { return piece.position + packed / group; }
__device__ Sight sight_of(const AttentionTask& task, const AttentionPiece& piece) {
    const int group = task.heads / task.cache.kv_heads;
    const int first = position_of(piece, group, piece.packed_begin);
    const int last = position_of(piece, group, piece.packed_begin + piece.packed_count - 1);
    const int first_seen = first - task.window + 1 > 0 ? first - task.window + 1 : 0;
    const int begin = piece.span_begin * span_pages;
    const int end = piece.span_end * span_pages;
    return {group, first_seen / page > begin ? first_seen / page : begin, last / page + 1 < end ? last / page + 1 : end, last + 1};
}
__device__ bool is_seen(int token, int position, int window) { return token <= position && token > position - window; }

// Keys of one page and kv head, and how far behind them its values stand.
template <class T>
__device__ const T* keys_of(const AttentionTask& task, const AttentionPiece& piece, int page_index, int kv_head) {
    const std::int64_t block_index = task.work->blocks[piece.blocks_begin + page_index];
    return reinterpret_cast<const T*>(task.cache.data + (block_index * 2 * task.cache.kv_heads + kv_head) * task.cache.head_bytes);
}
template <class T>
__device__ std::int64_t values_after_keys(const AttentionTask& task) {
    return task.cache.kv_heads * task.cache.head_bytes / static_cast<std::int64_t>(sizeof(T));
}
__device__ const float* scales_of(const AttentionTask& task, const Fp8* head) {
    return reinterpret_cast<const float*>(head + kv_scales_offset(task.cache.padded_head_dim));
}

__device__ const float* query_of(const AttentionTask& task, const AttentionPiece& piece, int group, int packed, int kv_head) {
    const std::int64_t row = piece.row_begin + packed / group;
    const int head = kv_head * group + packed % group;
    return static_cast<const float*>(task.qkv.data) + row * task.qkv.stride + static_cast<std::int64_t>(head) * task.head_dim;
}

// The partial result of a slot: [padded_head_dim] weighted values, largest score, sum of weights.
__device__ float* partial_of(const AttentionTask& task, std::int64_t slot, int kv_head) {
    return task.work->workspace + (slot * task.cache.kv_heads + kv_head) * (task.cache.padded_head_dim + 2);
}

// How many warps share 16 rows, and the dimensions of each.
template <int head_dim>
constexpr int halves_of = head_dim <= 128 ? 1 : 2;
template <int head_dim>
constexpr int dims_of = head_dim / halves_of<head_dim>;

template <class T>
constexpr int chunk = 16 / static_cast<int>(sizeof(T));  // elements that are copied at once
// Rows of an odd number of chunks: ldmatrix finds each in other banks.
template <class T, int head_dim>
constexpr int stride_of = (head_dim / chunk<T> | 1) * chunk<T>;
template <class T>
constexpr bool has_scales = std::is_same_v<T, Fp8>;

template <class T, int head_dim>
struct Page {
    alignas(16) T keys[page][std::size_t{stride_of<T, head_dim>}];
    alignas(16) T values[page][std::size_t{stride_of<T, head_dim>}];
    alignas(16) float key_scales[has_scales<T> ? page : 1];
    alignas(16) float value_scales[has_scales<T> ? page : 1];

    __device__ float key_scale(int token) const { return has_scales<T> ? key_scales[token] : 1.0F; }
    // What was never written may be anything, and nothing times anything may be NaN.
    __device__ float value_scale(int token, int written) const {
        return !has_scales<T> ? 1.0F : token < written ? value_scales[token] : 0.0F;
    }
};

template <class T, int head_dim, int warps>
struct Shared {
    static constexpr int stages = head_dim * sizeof(T) <= 256 ? 2 : 1;
    static constexpr std::size_t rows = std::size_t{warps / halves_of<head_dim>} * 16;
    alignas(16) Bfloat16 queries[rows][std::size_t{stride_of<Bfloat16, head_dim>}];
    Page<T, head_dim> pages[std::size_t{stages}];
    // What a warp computed of its rows' scores, for the one that has the other half.
    float scores[std::size_t{halves_of<head_dim> == 1 ? 1 : warps}][std::size_t{halves_of<head_dim> == 1 ? 1 : page / 2}][warp_size];
};

// The running warp's share of its block.
template <int head_dim>
__device__ int row_begin_of_warp() {
    return warp() / halves_of<head_dim> * 16;
}
template <int head_dim>
__device__ int dim_begin_of_warp() {
    return warp() % halves_of<head_dim> * dims_of<head_dim>;
}

template <class T, int head_dim>
__device__ void load_page(const AttentionTask& task, const AttentionPiece& piece, const Sight& sight, int page_index, int kv_head,
                          Page<T, head_dim>& to) {
    constexpr int chunks = head_dim / chunk<T>;
    const T* const keys = keys_of<T>(task, piece, page_index, kv_head);
    const T* const values = keys + values_after_keys<T>(task);
    const int written = sight.token_end - page_index * page;
    for (int i = thread_in_block(); i < page * chunks; i += block_threads()) {
        const int token = i / chunks;
        const int d = i % chunks * chunk<T>;
        copy_async(&to.keys[token][d], keys + token * head_dim + d, token < written);
        copy_async(&to.values[token][d], values + token * head_dim + d, token < written);
    }
    if constexpr (has_scales<T>) {
        for (int token = thread_in_block() * 4; token < page; token += block_threads() * 4) {
            copy_async(&to.key_scales[token], scales_of(task, keys) + token, token < written);
            copy_async(&to.value_scales[token], scales_of(task, values) + token, token < written);
        }
    }
    copy_async_commit();
}

// Which dimension stands at a place of the tensor cores' operands and sums: of 16 that are widened from fp8, even ones before odd ones.
template <class T>
__device__ constexpr int dim_at(int place) {
    return has_scales<T> ? place / 16 * 16 + place % 8 * 2 + place % 16 / 8 : place;
}

// Fragments of `keys`: of each eight of 32 tokens from `token` on, 16 dimensions from `dim` on.
template <std::size_t stride>
__device__ void load_keys(std::uint32_t (&b)[4][2], const Bfloat16 (&keys)[page][stride], int token, int dim) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        std::uint32_t r[4];
        load_matrices(r, &keys[token + half * 16 + lane() / 16 * 8 + lane() % 8][dim + lane() / 8 % 2 * 8]);
#pragma unroll
        for (int i = 0; i < 4; ++i) b[2 * half + i / 2][i % 2] = r[i];
    }
}
template <std::size_t stride>
__device__ void load_keys(std::uint32_t (&b)[4][2], const Fp8 (&keys)[page][stride], int token, int dim) {
    std::uint32_t r[4];
    load_matrices(r, &keys[token + lane()][dim]);
#pragma unroll
    for (int i = 0; i < 4; ++i) widen(r[i], b[i][0], b[i][1]);
}

// Fragments of `values`: of each 16 of 32 tokens from `token` on, of each eight of 16 dimensions from `dim` on.
template <std::size_t stride>
__device__ void load_values(std::uint32_t (&b)[2][2][2], const Bfloat16 (&values)[page][stride], int token, int dim) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        std::uint32_t r[4];
        load_matrices_transposed(r, &values[token + half * 16 + lane() % 16][dim + lane() / 16 * 8]);
#pragma unroll
        for (int i = 0; i < 4; ++i) b[half][i / 2][i % 2] = r[i];
    }
}
template <std::size_t stride>
__device__ void load_values(std::uint32_t (&b)[2][2][2], const Fp8 (&values)[page][stride], int token, int dim) {
    std::uint32_t r[4];
    load_matrices_transposed(r, &values[token + lane()][dim]);
#pragma unroll
    for (int i = 0; i < 4; ++i) widen(r[i], b[i / 2][0][i % 2], b[i / 2][1][i % 2]);
}

// The sums of a warp's 16 rows over the current span, of its dimensions. A lane holds, of rows lane / 4 and that + 8, two neighbours of
// every eight columns.
template <int dims>
struct SpanSums {
    float values[std::size_t{dims} / 8][4];
    Softmax rows[2];

    __device__ void clear() {
        for (auto& part : values) {
            for (float& x : part) x = 0.0F;
        }
        rows[0] = rows[1] = Softmax{};
    }
};

// scores = 2-based scaled queries · keys of one page; then sums over the page.
template <class T, int head_dim, int warps>
__device__ void add_page(Shared<T, head_dim, warps>& shared, const Page<T, head_dim>& from, int page_begin, const Sight& sight,
                         const int (&positions)[2], int window, float scale, SpanSums<dims_of<head_dim>>& sums) {
    constexpr int dims = dims_of<head_dim>;
    const int row_begin = row_begin_of_warp<head_dim>();
    const int dim_begin = dim_begin_of_warp<head_dim>();
    float scores[page / 8][4] = {};
#pragma unroll
    for (int k = 0; k < dims; k += 16) {
        std::uint32_t a[4];
        load_matrices(a, &shared.queries[row_begin + lane() % 16][dim_begin + k + lane() / 16 * 8]);
#pragma unroll
        for (int n = 0; n < page / 8; n += 4) {
            std::uint32_t b[4][2];
            load_keys(b, from.keys, n * 8, dim_begin + k);
#pragma unroll
            for (int i = 0; i < 4; ++i) multiply_add(scores[n + i], a, b[i]);
        }
    }

    if constexpr (halves_of<head_dim> == 2) {
#pragma unroll
        for (int i = 0; i < page / 2; ++i) shared.scores[warp()][i][lane()] = scores[i / 4][i % 4];
        barrier();
#pragma unroll
        for (int i = 0; i < page / 2; ++i) scores[i / 4][i % 4] += shared.scores[warp() ^ 1][i][lane()];
    }

    float largest[2] = {nothing, nothing};
#pragma unroll
    for (int n = 0; n < page / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int token = n * 8 + lane() % 4 * 2 + i % 2;
            scores[n][i] = is_seen(page_begin + token, positions[i / 2], window) ? scores[n][i] * from.key_scale(token) * scale : nothing;
            largest[i / 2] = larger(largest[i / 2], scores[n][i]);
        }
    }
    float kept[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        // The four lanes of a row.
        largest[half] = larger(largest[half], shuffle_xor(largest[half], 1));
        largest[half] = larger(largest[half], shuffle_xor(largest[half], 2));
        const Factors f = factors(sums.rows[half].largest, largest[half]);
        kept[half] = f.first;
        sums.rows[half].largest = f.largest;
        sums.rows[half].sum *= f.first;
    }
#pragma unroll
    for (int n = 0; n < page / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            Softmax& row = sums.rows[i / 2];
            const float weight = row.largest == nothing ? 0.0F : exp2f(scores[n][i] - row.largest);
            row.sum += weight;
            scores[n][i] = weight * from.value_scale(n * 8 + lane() % 4 * 2 + i % 2, sight.token_end - page_begin);
        }
    }
#pragma unroll
    for (int n = 0; n < dims / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums.values[n][i] *= kept[i / 2];
    }
#pragma unroll
    for (int k = 0; k < page / 8; k += 4) {
        std::uint32_t a[2][4];
#pragma unroll
        for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = pack(scores[k + i / 2][i % 2 * 2], scores[k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < dims / 8; n += 2) {
            std::uint32_t b[2][2][2];
            load_values(b, from.values, k * 8, dim_begin + n * 8);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
                for (int i = 0; i < 2; ++i) multiply_add(sums.values[n + i], a[half], b[half][i]);
            }
        }
    }
}

// Adds a finished span to the rows' partial results; `before` are their sums so far.
template <class T, int head_dim>
__device__ void end_span(const AttentionTask& task, const AttentionPiece& piece, int kv_head, SpanSums<dims_of<head_dim>>& sums,
                         Softmax (&before)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float sum = sums.rows[half].sum;
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        const int packed = row_begin_of_warp<head_dim>() + half * 8 + lane() / 4;
        const Factors f = factors(before[half].largest, sums.rows[half].largest);
        if (packed < piece.packed_count) {
            float* const partial = partial_of(task, piece.slot + packed, kv_head) + dim_begin_of_warp<head_dim>();
#pragma unroll
            for (int n = 0; n < dims_of<head_dim> / 8; ++n) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float& to = partial[dim_at<T>(n * 8 + lane() % 4 * 2 + i)];
                    const float old = f.first == 0.0F ? 0.0F : to;  // the first span finds anything there
                    to = old * f.first + sums.values[n][half * 2 + i] * f.second;
                }
            }
        }
        before[half] = {f.largest, before[half].sum * f.first + sum * f.second};
    }
    sums.clear();
}

template <class T, int head_dim, int warps>
__device__ void attend_piece(const AttentionTask& task, const AttentionPiece& piece, Shared<T, head_dim, warps>& shared) {
    constexpr int stages = Shared<T, head_dim, warps>::stages;
    const int kv_head = block().y;
    const Sight sight = sight_of(task, piece);

    load_page(task, piece, sight, sight.page_begin, kv_head, shared.pages[sight.page_begin % stages]);
    constexpr int rows = static_cast<int>(Shared<T, head_dim, warps>::rows);
    for (int i = thread_in_block(); i < rows * head_dim; i += warps * warp_size) {
        const int row = i / head_dim;
        const int d = dim_at<T>(i % head_dim);
        const bool exists = row < piece.packed_count && d < task.head_dim;
        shared.queries[row][i % head_dim] =
            exists ? to_bfloat16(query_of(task, piece, sight.group, piece.packed_begin + row, kv_head)[d]) : Bfloat16{};
    }
    int positions[2];
    for (int half = 0; half < 2; ++half) {
        const int packed = row_begin_of_warp<head_dim>() + half * 8 + lane() / 4;
        positions[half] = packed < piece.packed_count ? position_of(piece, sight.group, piece.packed_begin + packed) : -1;
    }

    SpanSums<dims_of<head_dim>> sums;
    sums.clear();
    Softmax before[2];
    for (int index = sight.page_begin; index < sight.page_end; ++index) {
        const bool another = index + 1 < sight.page_end;
        if (stages == 2 && another) {
            load_page(task, piece, sight, index + 1, kv_head, shared.pages[(index + 1) % stages]);
            copy_async_wait<1>();
        } else {
            copy_async_wait<0>();
        }
        barrier();
        add_page(shared, shared.pages[index % stages], index * page, sight, positions, task.window, task.scale * log2_e, sums);
        barrier();  // the next page's loads overwrite what was read here
        if (stages == 1 && another) load_page(task, piece, sight, index + 1, kv_head, shared.pages[0]);
        if ((index + 1) % span_pages == 0 || !another) end_span<T, head_dim>(task, piece, kv_head, sums, before);
    }
    for (int half = 0; half < 2; ++half) {
        const int packed = row_begin_of_warp<head_dim>() + half * 8 + lane() / 4;
        if (packed >= piece.packed_count || lane() % 4 != 0 || dim_begin_of_warp<head_dim>() != 0) continue;
        float* const partial = partial_of(task, piece.slot + packed, kv_head);
        partial[head_dim] = before[half].largest;
        partial[head_dim + 1] = before[half].sum;
    }
}

template <class T, int head_dim, int warps>
__global__ void __launch_bounds__(warps* warp_size) attend_tiles(AttentionTask task, bool wide) {
    const Pieces pieces = pieces_of(task, wide);
    // The barrier behind a piece's last page keeps the next one from overwriting what is yet to be read.
    for (int i = block().x; i < pieces.count; i += grid().x) {
        const AttentionPiece piece = pieces.first[i];
        attend_piece(task, piece, shared_memory<Shared<T, head_dim, warps>>());
    }
}

constexpr int plain_warps = 4;
struct PlainShared {
    float queries[plain_warps][head_dim_max];
    float weights[plain_warps][page];
};

// The same sums in float32, a row per warp: lanes share a page's tokens for the scores and the dimensions for the values.
__device__ void attend_plain_piece(const AttentionTask& task, const AttentionPiece& piece, PlainShared& shared) {
    constexpr int dims = head_dim_max / warp_size;
    constexpr int tokens = page / warp_size;
    float* const query = shared.queries[warp()];
    float* const weights = shared.weights[warp()];
    const int kv_head = block().y;
    const Sight sight = sight_of(task, piece);
    const int head_dim = task.cache.padded_head_dim;
    for (int row = warp(); row < piece.packed_count; row += plain_warps) {
        const float* const from = query_of(task, piece, sight.group, piece.packed_begin + row, kv_head);
        for (int d = lane(); d < head_dim; d += warp_size) query[d] = d < task.head_dim ? from[d] : 0.0F;
        warp_barrier();
        const int position = position_of(piece, sight.group, piece.packed_begin + row);
        float values[dims] = {};
        float span_values[dims] = {};
        Softmax total;
        Softmax span;
        for (int index = sight.page_begin; index < sight.page_end; ++index) {
            const auto* const keys = keys_of<float>(task, piece, index, kv_head);
            const float* const page_values = keys + values_after_keys<float>(task);
            float scores[tokens];
            float largest = nothing;
            for (int i = 0; i < tokens; ++i) {
                const int token = lane() + i * warp_size;
                scores[i] = nothing;
                if (!is_seen(index * page + token, position, task.window)) continue;
                float score = 0.0F;
                for (int d = 0; d < head_dim; ++d) score = fmaf(query[d], keys[token * head_dim + d], score);
                scores[i] = score * task.scale * log2_e;
                largest = larger(largest, scores[i]);
            }
            const Factors f = factors(span.largest, warp_largest(largest));
            float sum = 0.0F;
            for (int i = 0; i < tokens; ++i) {
                const float weight = f.largest == nothing ? 0.0F : exp2f(scores[i] - f.largest);
                weights[lane() + i * warp_size] = weight;
                sum += weight;
            }
            span = {f.largest, span.sum * f.first + warp_sum(sum)};
            warp_barrier();
            for (int i = 0; i < dims; ++i) {
                const int d = lane() + i * warp_size;
                if (d >= head_dim) continue;
                span_values[i] *= f.first;
                for (int token = 0; token < page; ++token) {
                    if (!is_seen(index * page + token, position, task.window)) continue;
                    span_values[i] = fmaf(weights[token], page_values[token * head_dim + d], span_values[i]);
                }
            }
            warp_barrier();  // the next page's weights overwrite what was read here
            if ((index + 1) % span_pages != 0 && index + 1 < sight.page_end) continue;
            const Factors merged = factors(total.largest, span.largest);
            for (int i = 0; i < dims; ++i) {
                values[i] = values[i] * merged.first + span_values[i] * merged.second;
                span_values[i] = 0.0F;
            }
            total = {merged.largest, total.sum * merged.first + span.sum * merged.second};
            span = Softmax{};
        }
        float* const partial = partial_of(task, piece.slot + row, kv_head);
        for (int i = 0; i < dims; ++i) {
            if (lane() + i * warp_size < head_dim) partial[lane() + i * warp_size] = values[i];
        }
        if (lane() == 0) {
            partial[head_dim] = total.largest;
            partial[head_dim + 1] = total.sum;
        }
    }
}

__global__ void __launch_bounds__(plain_warps* warp_size) attend_float32(AttentionTask task, bool wide) {
    const Pieces pieces = pieces_of(task, wide);
    for (int i = block().x; i < pieces.count; i += grid().x) {
        const AttentionPiece piece = pieces.first[i];
        attend_plain_piece(task, piece, shared_memory<PlainShared>());
    }
}

// Merges the partial results of each row's spans in order and divides by the sum of weights. A warp per row.
template <class Out>
__device__ void merge_piece(const AttentionTask& task, const AttentionMerge& piece) {
    constexpr int dims = head_dim_max / warp_size;
    const int kv_head = block().y;
    const int group = task.heads / task.cache.kv_heads;
    const int head_dim = task.cache.padded_head_dim;
    for (int row = warp(); row < piece.packed_count; row += plain_warps) {
        float values[dims] = {};
        Softmax total;
        for (int i = 0; i < piece.spans; ++i) {
            const float* const partial = partial_of(task, piece.slot + static_cast<std::int64_t>(i) * piece.packed_count + row, kv_head);
            const Factors f = factors(total.largest, partial[head_dim]);
            for (int j = 0; j < dims; ++j) {
                const int d = lane() + j * warp_size;
                if (d < head_dim) values[j] = values[j] * f.first + partial[d] * f.second;
            }
            total = {f.largest, total.sum * f.first + partial[head_dim + 1] * f.second};
        }
        const int packed = piece.packed_begin + row;
        auto* const out = static_cast<Out*>(task.out.data) + (piece.row_begin + packed / group) * task.out.stride +
                          static_cast<std::int64_t>(kv_head * group + packed % group) * task.head_dim;
        for (int j = 0; j < dims; ++j) {
            const int d = lane() + j * warp_size;
            if (d < task.head_dim) store(out + d, values[j] / total.sum);
        }
    }
}

template <class Out>
__global__ void __launch_bounds__(plain_warps* warp_size) merge(AttentionTask task) {
    for (int i = block().x; i < task.work->merge_count; i += grid().x) {
        const AttentionMerge piece = task.work->merges[i];
        merge_piece<Out>(task, piece);
    }
}

template <class T, int head_dim, int warps>
void run_pieces(const AttentionTask& task, bool wide, cudaStream_t stream) {
    const int blocks = wide ? task.size.wide : task.size.narrow;
    if (blocks == 0) return;
    launch(attend_tiles<T, head_dim, warps>,
           {.blocks = {blocks, task.cache.kv_heads},
            .threads = warps * warp_size,
            .shared_bytes = sizeof(Shared<T, head_dim, warps>),
            .stream = stream},
           task, wide);
}

template <class T, int head_dim>
void run_heads(const AttentionTask& task, cudaStream_t stream) {
    constexpr int halves = halves_of<head_dim>;
    static_assert(Shared<T, head_dim, halves>::rows == narrow_rows && Shared<T, head_dim, 4 * halves>::rows == wide_rows);
    run_pieces<T, head_dim, halves>(task, false, stream);
    run_pieces<T, head_dim, 4 * halves>(task, true, stream);
}

template <class T>
void run_tiles(const AttentionTask& task, cudaStream_t stream) {
    switch (task.cache.padded_head_dim) {
        case 16: return run_heads<T, 16>(task, stream);
        case 32: return run_heads<T, 32>(task, stream);
        case 64: return run_heads<T, 64>(task, stream);
        case 80: return run_heads<T, 80>(task, stream);
        case 96: return run_heads<T, 96>(task, stream);
        case 128: return run_heads<T, 128>(task, stream);
        default: return run_heads<T, 256>(task, stream);  // padded_head_dim() gives no other
    }
}

void run_plain_pieces(const AttentionTask& task, bool wide, cudaStream_t stream) {
    const int blocks = wide ? task.size.wide : task.size.narrow;
    if (blocks == 0) return;
    launch(attend_float32,
           {.blocks = {blocks, task.cache.kv_heads},
            .threads = plain_warps * warp_size,
            .shared_bytes = sizeof(PlainShared),
            .stream = stream},
           task, wide);
}

}  // namespace

void run_attention(const AttentionTask& task, cudaStream_t stream) {
    if (task.cache.format == Format::float32) {
        run_plain_pieces(task, false, stream);
        run_plain_pieces(task, true, stream);
    } else if (task.cache.format == Format::fp8_rows) {
        run_tiles<Fp8>(task, stream);
    } else {
        run_tiles<Bfloat16>(task, stream);
    }
    const Launch how{
        .blocks = {task.size.merges, task.cache.kv_heads}, .threads = plain_warps * warp_size, .shared_bytes = 0, .stream = stream};
    if (task.out.format == Format::float32) {
        launch(merge<float>, how, task);
    } else {
        launch(merge<Bfloat16>, how, task);
    }
}

}  // namespace lorry::kernels::cuda
