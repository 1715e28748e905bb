// Causal attention over the paged cache, with the same arithmetic for prefill, chunks and decoding. A context is divided into spans of
// kv_span tokens at fixed positions. Each span has a softmax sum of its own, and the sums are merged in order of spans, so a row's result
// depends only on its context. The method is FlashAttention (Dao 2023) with split keys. Launched by graphs.cpp.
//
// Narrow pieces (few rows): one block per span, whose sums go through memory to the kernel that merges them. Wide pieces (many rows): one
// block processes all spans, merges them in registers, and writes results. The heads of a row finish in different blocks; if rows become
// fp8, the block that finishes a row's last head converts it (joint_rows.h).
//
// bfloat16: tensor cores, 16 packed rows per warp (shapes.h). For heads wider than 128, two warps share the rows: each computes the scores
// of its half of the dimensions, they exchange and add them, and each sums its half of the values. fp8: the same products, of elements that
// are widened between shared memory and the tensor cores; a key's scale is multiplied into its score, a value's into its weight. float32:
// one warp per row.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_page.h"

namespace lorry::kernels::cuda {

namespace {

// The number of warps that share 16 rows, and the dimensions of each.
template <int head_dim>
constexpr int halves_of = head_dim <= 128 ? 1 : 2;
template <int head_dim>
constexpr int dims_of = head_dim / halves_of<head_dim>;

// The scores that a warp computed, for the warp with the other half of the dimensions. They replace the keys.
template <class T, int head_dim, int warps>
union KeysOrScores {
    alignas(16) T keys[page][std::size_t{stride_of<T, head_dim>}];
    float scores[std::size_t{halves_of<head_dim> == 1 ? 1 : warps}][std::size_t{halves_of<head_dim> == 1 ? 1 : page / 2}][warp_size];
};

// Results become fp8 when the piece no longer needs its queries.
template <int head_dim, int rows>
union QueriesOrRows {
    alignas(16) Bfloat16 queries[std::size_t{rows}][std::size_t{stride_of<Bfloat16, head_dim>}];
    JointScratch joint;
};

template <class T, int head_dim, int warps>
struct Shared : PageScales<T> {
    static constexpr bool is_wide = warps > halves_of<head_dim>;
    static constexpr int rows = warps / halves_of<head_dim> * 16;
    QueriesOrRows<head_dim, rows> first;
    KeysOrScores<T, head_dim, warps> either;
    alignas(16) T page_values[page][std::size_t{stride_of<T, head_dim>}];
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

template <int head_dim>
__device__ WarpRows rows_of_warp(const AttentionPiece& piece, int group) {
    const int begin = row_begin_of_warp<head_dim>();
    if (begin >= piece.packed_count) return {0, -1, {-1, -1}};
    const int last = begin + 15 < piece.packed_count ? begin + 15 : piece.packed_count - 1;
    WarpRows rows{position_of(piece, group, piece.packed_begin + begin), position_of(piece, group, piece.packed_begin + last), {-1, -1}};
    for (int half = 0; half < 2; ++half) {
        const int row = begin + half * 8 + lane() / 4;
        if (row < piece.packed_count) rows.own[half] = position_of(piece, group, piece.packed_begin + row);
    }
    return rows;
}

// The scores of a warp's 16 rows for a page, before and after they become weights. A lane holds two neighbours of every eight tokens, for
// rows lane / 4 and lane / 4 + 8.
using Scores = float[page / 8][4];
// scores[n][i] belongs to token token_of(n, i) + the lane's first. Positions that a lane compares with tokens are reduced by its first
// token once.
__device__ constexpr int token_of(int n, int i) { return n * 8 + i % 2; }
__device__ int token_begin_of_lane() { return lane() % 4 * 2; }

// queries · keys, over the warp's dimensions.
template <class T, int head_dim, int warps>
__device__ void multiply_keys(const Shared<T, head_dim, warps>& shared, Scores& scores) {
    const int row_begin = row_begin_of_warp<head_dim>();
    const int dim_begin = dim_begin_of_warp<head_dim>();
    for (auto& part : scores) {
        for (float& x : part) x = 0.0F;
    }
#pragma unroll
    for (int k = 0; k < dims_of<head_dim>; k += 16) {
        std::uint32_t a[4];
        load_matrices(a, &shared.first.queries[row_begin + lane() % 16][dim_begin + k + lane() / 16 * 8]);
#pragma unroll
        for (int n = 0; n < page / 8; n += 4) {
            std::uint32_t b[4][2];
            load_keys(b, shared.either.keys, n * 8, dim_begin + k);
#pragma unroll
            for (int i = 0; i < 4; ++i) multiply_add(scores[n + i], a, b[i]);
        }
    }
}

// Adds the scores of the warp with the other dimensions. All threads of the block call this; the keys are overwritten.
template <class T, int head_dim, int warps>
__device__ void add_other_half(Shared<T, head_dim, warps>& shared, bool is_seen, Scores& scores) {
    barrier();
    if (is_seen) {
#pragma unroll
        for (int i = 0; i < page / 2; ++i) shared.either.scores[warp()][i][lane()] = scores[i / 4][i % 4];
    }
    barrier();
    if (is_seen) {
#pragma unroll
        for (int i = 0; i < page / 2; ++i) scores[i / 4][i % 4] += shared.either.scores[warp() ^ 1][i][lane()];
    }
}

// The sums of a warp's 16 rows for its dimensions, with the layout of scores. `rows` belongs to the lane's two rows: for all their tokens,
// or in the current span for the lane's own tokens.
template <int dims>
struct Sums {
    float values[std::size_t{dims} / 8][4];
    Softmax rows[2];

    __device__ void clear() {
        for (auto& part : values) {
            for (float& x : part) x = 0.0F;
        }
        rows[0] = rows[1] = Softmax{};
    }
};

// Turns scores into weights, and rescales the span's sums so that the page's can be added.
template <class T, int dims>
__device__ void weigh(Scores& scores, const PageScales<T>& scales, int index, const WarpRows& rows, int window, const ScoreMap& map,
                      Sums<dims>& span) {
#pragma unroll
    for (int n = 0; n < page / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[n][i] = map(scores[n][i] * scales.key_scale(index, token_begin_of_lane() + token_of(n, i)));
    }
    if (!rows.see_all_of(index * page, window)) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int position = rows.own[i / 2] - index * page - token_begin_of_lane();
#pragma unroll
            for (int n = 0; n < page / 8; ++n) {
                if (!is_seen(token_of(n, i), position, window)) scores[n][i] = nothing;
            }
        }
    }
    float largest[2] = {nothing, nothing};
#pragma unroll
    for (int n = 0; n < page / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) largest[i / 2] = larger(largest[i / 2], scores[n][i]);
    }
    float kept[2];
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        // The four lanes of a row.
        largest[half] = larger(largest[half], shuffle_xor(largest[half], 1));
        largest[half] = larger(largest[half], shuffle_xor(largest[half], 2));
        const Factors f = factors(span.rows[half].largest, largest[half]);
        kept[half] = f.first;
        shift[half] = f.largest == nothing ? 0.0F : f.largest;
        span.rows[half] = {f.largest, span.rows[half].sum * f.first};
    }
#pragma unroll
    for (int n = 0; n < page / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            scores[n][i] = exp2f(scores[n][i] - shift[i / 2]);
            span.rows[i / 2].sum += scores[n][i];
        }
    }
#pragma unroll
    for (int n = 0; n < dims / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) span.values[n][i] *= kept[i / 2];
    }
}

// weights · values, over the warp's dimensions.
template <class T, int head_dim, int warps>
__device__ void add_values(const Shared<T, head_dim, warps>& shared, Scores& weights, int written, Sums<dims_of<head_dim>>& span) {
    const int dim_begin = dim_begin_of_warp<head_dim>();
#pragma unroll
    for (int n = 0; n < page / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) weights[n][i] *= shared.value_scale(token_begin_of_lane(), token_of(n, i), written);
    }
#pragma unroll
    for (int k = 0; k < page / 8; k += 4) {
        std::uint32_t a[2][4];
#pragma unroll
        for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = pack(weights[k + i / 2][i % 2 * 2], weights[k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < dims_of<head_dim> / 8; n += 2) {
            std::uint32_t b[2][2][2];
            load_values(b, shared.page_values, k * 8, dim_begin + n * 8);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
                for (int i = 0; i < 2; ++i) multiply_add(span.values[n + i], a[half], b[half][i]);
            }
        }
    }
}

// Adds up the rows' sums of weights over all lanes.
template <int dims>
__device__ void end_span(Sums<dims>& span) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        span.rows[half].sum += shuffle_xor(span.rows[half].sum, 1);
        span.rows[half].sum += shuffle_xor(span.rows[half].sum, 2);
    }
}

// Merges a span like merge_piece().
template <int dims>
__device__ void add_span(const Sums<dims>& span, Sums<dims>& total) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const Factors f = factors(total.rows[half].largest, span.rows[half].largest);
#pragma unroll
        for (int n = 0; n < dims / 8; ++n) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) total.values[n][i] = total.values[n][i] * f.first + span.values[n][i] * f.second;
        }
        total.rows[half] = {f.largest, total.rows[half].sum * f.first + span.rows[half].sum * f.second};
    }
}

// Calls begin(packed row of the piece, half), which returns write(dimension, sum of its weighted values), for the lane's part of the
// piece's rows.
template <class T, int head_dim, class Begin>
__device__ void write_sums(const AttentionPiece& piece, const Sums<dims_of<head_dim>>& sums, const Begin& begin) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = row_begin_of_warp<head_dim>() + half * 8 + lane() / 4;
        if (row >= piece.packed_count) continue;
        const auto write = begin(row, half);
#pragma unroll
        for (int n = 0; n < dims_of<head_dim> / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                write(dim_begin_of_warp<head_dim>() + dim_at<T>(n * 8 + lane() % 4 * 2 + i), sums.values[n][half * 2 + i]);
            }
        }
    }
}

// One warp per row; all loads of a row are in flight before the first is used.
template <class T, int head_dim, int warps>
__device__ void load_queries(const AttentionTask& task, const AttentionPiece& piece, int group, int kv_head,
                             Shared<T, head_dim, warps>& shared) {
    constexpr int parts = (head_dim + warp_size - 1) / warp_size;
    for (int row = warp(); row < Shared<T, head_dim, warps>::rows; row += warps) {
        const bool row_exists = row < piece.packed_count;
        const float* const from = query_of(task, piece, group, piece.packed_begin + (row_exists ? row : 0), kv_head);
        float x[std::size_t{parts}];
#pragma unroll
        for (int part = 0; part < parts; ++part) {
            const int d = dim_at<T>(part * warp_size + lane());
            x[part] = row_exists && d < task.head_dim ? from[d] : 0.0F;
        }
#pragma unroll
        for (int part = 0; part < parts; ++part) {
            const int place = part * warp_size + lane();
            if (place < head_dim) shared.first.queries[row][place] = to_bfloat16(x[part]);
        }
    }
}

// Writes the results of a piece whose rows walked all their spans.
template <class T, int head_dim>
__device__ void write_results(const AttentionTask& task, const AttentionPiece& piece, int group, const Sums<dims_of<head_dim>>& total,
                              JointScratch& scratch) {
    const int kv_head = block().x;
    const float inverses[2] = {total.rows[0].inverse(), total.rows[1].inverse()};
    std::uint32_t largest[2] = {0, 0};
    write_sums<T, head_dim>(piece, total, [&](int row, int half) {
        const std::int64_t begin = result_of(task, piece.row_begin, group, piece.packed_begin + row, kv_head).begin;
        return [&task, &most = largest[half], begin, inverse = inverses[half]](int d, float sum) {
            if (d >= task.head_dim) return;
            const float result = sum * inverse;
            store_result(task.out, begin + d, result);
            most = larger(most, magnitude_bits(result));
        };
    });
    if (task.joint.rows.data == nullptr) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        // The four lanes of a row.
        largest[half] = larger(largest[half], shuffle_xor(largest[half], 1));
        largest[half] = larger(largest[half], shuffle_xor(largest[half], 2));
        const int row = row_begin_of_warp<head_dim>() + half * 8 + lane() / 4;
        if (lane() % 4 != 0 || row >= piece.packed_count) continue;
        note_largest(task.joint, result_of(task, piece.row_begin, group, piece.packed_begin + row, kv_head).row, largest[half]);
    }
    quantize_results<8>(task, piece, group, scratch);
}

// Writes the partial results of one span, which merge_piece adds up.
template <class T, int head_dim>
__device__ void write_partials(const AttentionTask& task, const AttentionPiece& piece, const Sums<dims_of<head_dim>>& span) {
    write_sums<T, head_dim>(piece, span, [&](int row, int half) {
        float* const partial = partial_of(task, piece.slot + row, block().x);
        const Softmax of_row = span.rows[half];
        return [=](int d, float sum) {
            partial[d] = sum;
            if (d != 0) return;
            partial[head_dim] = of_row.largest;
            partial[head_dim + 1] = of_row.sum;
        };
    });
}

// The keys of a page are loaded while the page before it is weighed and its values are summed, the values while the scores are computed.
// Shared memory holds one page of each.
template <class T, int head_dim, int warps>
__device__ void attend_piece(const AttentionTask& task, const AttentionPiece& piece, Shared<T, head_dim, warps>& shared) {
    constexpr int threads = warps * warp_size;
    constexpr int dims = dims_of<head_dim>;
    const int kv_head = block().x;
    const Sight sight = sight_of(task, piece);
    const auto load_page_keys = [&](const T* keys, int index) {
        load_tokens<threads, head_dim>(shared.either.keys, keys, sight.token_end - index * page);
        if constexpr (has_scales<T>) load_scales(shared.keys[index % 2], scales_of(task, keys), sight.token_end - index * page);
        copy_async_commit();
    };
    const auto load_page_values = [&](const T* values, int index) {
        load_tokens<threads, head_dim>(shared.page_values, values, sight.token_end - index * page);
        if constexpr (has_scales<T>) load_scales(shared.values, scales_of(task, values), sight.token_end - index * page);
        copy_async_commit();
    };

    const std::int32_t* const blocks = blocks_of(task, piece);
    const T* keys = keys_of<T>(task, blocks[sight.page_begin], kv_head);
    load_page_keys(keys, sight.page_begin);
    load_queries<T, head_dim, warps>(task, piece, sight.group, kv_head, shared);
    const WarpRows rows = rows_of_warp<head_dim>(piece, sight.group);
    Sums<dims> span;
    span.clear();
    Sums<dims> total;
    total.clear();
    for (int index = sight.page_begin; index < sight.page_end; ++index) {
        const bool another = index + 1 < sight.page_end;
        const bool is_seen = rows.see_any_of(index * page, task.window);
        copy_async_wait<0>();
        barrier();  // the keys have arrived, and the previous values are no longer read
        load_page_values(keys + values_after_keys<T>(task), index);
        const std::int32_t next = another ? blocks[index + 1] : 0;  // loaded long before it is needed
        Scores scores;
        if (is_seen) multiply_keys(shared, scores);
        if constexpr (halves_of<head_dim> == 2) add_other_half(shared, is_seen, scores);
        copy_async_wait<0>();
        barrier();  // the values have arrived, and the keys are no longer read
        if (another) {
            keys = keys_of<T>(task, next, kv_head);
            load_page_keys(keys, index + 1);
        }
        if (is_seen) {
            weigh<T>(scores, shared, index, rows, task.window, ScoreMap(task), span);
            add_values(shared, scores, sight.token_end - index * page, span);
        }
        if (Shared<T, head_dim, warps>::is_wide && ((index + 1) % span_pages == 0 || !another)) {
            end_span(span);
            add_span(span, total);
            span.clear();
        }
    }
    if constexpr (Shared<T, head_dim, warps>::is_wide) {
        write_results<T, head_dim>(task, piece, sight.group, total, shared.first.joint);
    } else {
        end_span(span);
        write_partials<T, head_dim>(task, piece, span);
    }
}

template <class T, int head_dim, int warps>
__global__ void __launch_bounds__(warps* warp_size) attend_tiles(AttentionTask task) {
    using Memory = Shared<T, head_dim, warps>;
    const Pieces pieces = pieces_of(task, Memory::is_wide);
    for (int i = block().y; i < pieces.count; i += grid().y) {
        const AttentionPiece piece = pieces.first[i];
        attend_piece(task, piece, shared_memory<Memory>());
        barrier();  // the next piece's loads overwrite what was read here
    }
}

constexpr int plain_warps = 4;
constexpr int plain_dims = head_dim_max / warp_size;  // of a lane: lane(), lane() + 32 …
struct PlainShared {
    float queries[plain_warps][head_dim_max];
    float weights[plain_warps][page];
    JointScratch joint;
};

// Stores the result of a packed row and kv head for which the running warp has all sums.
__device__ void store_row_of_head(const AttentionTask& task, const ResultPlace& place, const float (&values)[plain_dims],
                                  const Softmax& total) {
    const float inverse = total.inverse();
    std::uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < plain_dims; ++i) {
        const int d = lane() + i * warp_size;
        if (d >= task.head_dim) continue;
        const float result = values[i] * inverse;
        store_result(task.out, place.begin + d, result);
        largest = larger(largest, magnitude_bits(result));
    }
    if (task.joint.rows.data == nullptr) return;
    largest = warp_largest(largest);
    if (lane() == 0) note_largest(task.joint, place.row, largest);
}

// The same of one span: a partial result, which merge_piece adds up.
__device__ void store_partial_row(float* partial, int head_dim, const float (&values)[plain_dims], const Softmax& total) {
    for (int d = lane(), i = 0; d < head_dim; d += warp_size, ++i) partial[d] = values[i];
    if (lane() == 0) {
        partial[head_dim] = total.largest;
        partial[head_dim + 1] = total.sum;
    }
}

// The same sums in float32, one row per warp: lanes share a page's tokens for the scores and the dimensions for the values.
__device__ void attend_plain_piece(const AttentionTask& task, const AttentionPiece& piece, bool wide, PlainShared& shared) {
    constexpr int tokens = page / warp_size;
    float* const query = shared.queries[warp()];
    float* const weights = shared.weights[warp()];
    const int kv_head = block().x;
    const Sight sight = sight_of(task, piece);
    const int head_dim = task.cache.padded_head_dim;
    for (int row = warp(); row < piece.packed_count; row += plain_warps) {
        const float* const from = query_of(task, piece, sight.group, piece.packed_begin + row, kv_head);
        for (int d = lane(); d < head_dim; d += warp_size) query[d] = d < task.head_dim ? from[d] : 0.0F;
        warp_barrier();
        const int position = position_of(piece, sight.group, piece.packed_begin + row);
        float values[plain_dims] = {};
        float span_values[plain_dims] = {};
        Softmax total;
        Softmax span;
        for (int index = sight.page_begin; index < sight.page_end; ++index) {
            const auto* const keys = keys_of<float>(task, blocks_of(task, piece)[index], kv_head);
            const float* const page_values = keys + values_after_keys<float>(task);
            float scores[tokens];
            float largest = nothing;
            for (int i = 0; i < tokens; ++i) {
                const int token = lane() + i * warp_size;
                scores[i] = nothing;
                if (!is_seen(index * page + token, position, task.window)) continue;
                float score = 0.0F;
                for (int d = 0; d < head_dim; ++d) score = fmaf(query[d], keys[token * head_dim + d], score);
                scores[i] = ScoreMap(task)(score);
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
            for (int i = 0; i < plain_dims; ++i) {
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
            for (int i = 0; i < plain_dims; ++i) {
                values[i] = values[i] * merged.first + span_values[i] * merged.second;
                span_values[i] = 0.0F;
            }
            total = {merged.largest, total.sum * merged.first + span.sum * merged.second};
            span = Softmax{};
        }
        if (wide) {
            store_row_of_head(task, result_of(task, piece.row_begin, sight.group, piece.packed_begin + row, kv_head), values, total);
        } else {
            store_partial_row(partial_of(task, piece.slot + row, kv_head), head_dim, values, total);
        }
    }
    if (wide && task.joint.rows.data != nullptr) quantize_results<4>(task, piece, sight.group, shared.joint);
}

__global__ void __launch_bounds__(plain_warps* warp_size) attend_float32(AttentionTask task, bool wide) {
    const Pieces pieces = pieces_of(task, wide);
    for (int i = block().y; i < pieces.count; i += grid().y) {
        const AttentionPiece piece = pieces.first[i];
        attend_plain_piece(task, piece, wide, shared_memory<PlainShared>());
    }
}

// Merges the partial results of each row's spans in order, like add_span(). One warp per row.
__device__ void merge_piece(const AttentionTask& task, const AttentionMerge& piece, JointScratch& scratch) {
    constexpr int dims = plain_dims;
    const int kv_head = block().x;
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
        store_row_of_head(task, result_of(task, piece.row_begin, group, piece.packed_begin + row, kv_head), values, total);
    }
    if (task.joint.rows.data != nullptr) quantize_results<4>(task, piece, group, scratch);
}

// Many blocks per multiprocessor, because they wait for memory.
__global__ void __launch_bounds__(plain_warps* warp_size, 8) merge(AttentionTask task) {
    for (int i = block().y; i < task.work->merge_count; i += grid().y) {
        const AttentionMerge piece = task.work->merges[i];
        merge_piece(task, piece, shared_memory<JointScratch>());
    }
}

// The heads of a piece run side by side, so that converting a row to fp8 in the last of them does not wait for all pieces, and the longest
// pieces of all heads come first.
Blocks blocks_for(const AttentionTask& task, int pieces) {
    constexpr int grid_pieces_max = 65535;  // limit of a grid's second dimension
    return {task.cache.kv_heads, pieces < grid_pieces_max ? pieces : grid_pieces_max};
}

template <class T, int head_dim, int warps>
void run_pieces(const AttentionTask& task, int blocks, cudaStream_t stream) {
    using Memory = Shared<T, head_dim, warps>;
    static_assert(Memory::rows == (Memory::is_wide ? wide_rows(head_dim) : narrow_rows));
    static_assert(sizeof(Memory) <= std::size_t{99} << 10, "what a block may have on compute capability 8.6, 8.9 and 12.0");
    if (blocks == 0) return;
    launch(attend_tiles<T, head_dim, warps>,
           {.blocks = blocks_for(task, blocks), .threads = warps * warp_size, .shared_bytes = sizeof(Memory), .stream = stream}, task);
}

template <class T, int head_dim>
void run_heads(const AttentionTask& task, cudaStream_t stream) {
    run_pieces<T, head_dim, halves_of<head_dim>>(task, task.size.narrow, stream);
    run_pieces<T, head_dim, 8>(task, task.size.wide, stream);
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
        default: return run_heads<T, 256>(task, stream);  // padded_head_dim() returns no other
    }
}

void run_plain_pieces(const AttentionTask& task, bool wide, cudaStream_t stream) {
    const int blocks = wide ? task.size.wide : task.size.narrow;
    if (blocks == 0) return;
    launch(attend_float32,
           {.blocks = blocks_for(task, blocks), .threads = plain_warps * warp_size, .shared_bytes = sizeof(PlainShared), .stream = stream},
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
    if (task.size.merges == 0) return;
    launch(merge,
           {.blocks = blocks_for(task, task.size.merges),
            .threads = plain_warps * warp_size,
            .shared_bytes = sizeof(JointScratch),
            .stream = stream},
           task);
}

}  // namespace lorry::kernels::cuda
