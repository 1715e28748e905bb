// The attention op: divides sequences, kv heads and query rows into pieces that read the same keys and values.
#include <algorithm>
#include <array>
#include <span>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/views.h"

namespace lorry::kernels::cpu {

namespace {

std::int64_t longest_context(const StepInputs& step) {
    std::int64_t longest = 0;
    for (const StepSequence& sequence : step.sequences) longest = std::max(longest, sequence.position + sequence.row_count);
    return longest;
}

}  // namespace

void CpuBackend::cut_attention(const AttentionArgs& args) {
    const std::int64_t group = args.heads / args.kv_heads;
    const std::int64_t positions = std::max<std::int64_t>(1, kernels_.attention_rows / group);
    attention_pieces_.clear();
    for (const StepSequence& sequence : args.step.sequences) {
        for (std::int64_t head = 0; head < args.kv_heads; ++head) {
            for (std::int64_t row = 0; row < sequence.row_count; row += positions) {
                attention_pieces_.push_back({&sequence, head, row, std::min(positions, sequence.row_count - row)});
            }
        }
    }
}

AttentionTask CpuBackend::attention_task(const AttentionArgs& args, const AttentionPiece& piece, std::int64_t longest) {
    const auto& cache = static_cast<const CpuKvCache&>(args.cache);
    const std::int64_t group = args.heads / args.kv_heads;
    const float* const q = floats(args.qkv) + (piece.sequence->row_begin + piece.row_begin) * args.qkv.stride;
    const std::int64_t position = piece.sequence->position + piece.row_begin;
    AttentionTask task{.q = q + piece.kv_head * group * args.head_dim,
                       .q_stride = args.qkv.stride,
                       .keys = cache.layer(args.layer) + piece.kv_head * cache.head_bytes(),
                       .value_offset = cache.value_offset(),
                       .block_bytes = cache.layer_block_bytes(),
                       .layout = cache.layout(),
                       .blocks = piece.sequence->blocks.data(),
                       .position = position,
                       .positions = piece.rows,
                       .tokens = piece.sequence->position + piece.sequence->row_count,
                       .window = args.window.value_or(longest),
                       .ahead = args.mask == AttentionMask::full ? args.window.value_or(longest) - 1 : 0,
                       .group = group,
                       .head_dim = args.head_dim,
                       .value_stride = cache.value_stride(),
                       .scale = args.scale,
                       .has_cap = args.cap.has_value(),
                       .cap = args.cap.value_or(0.0F),
                       .sinks = args.sinks.empty() ? nullptr : floats(args.sinks) + piece.kv_head * group};
    if (const Matrix& distances = args.bias_by_distance; distances.rows > 0) {
        // Token 0 is `position` before the first row's own token.
        task.bias = floats(distances) + piece.kv_head * group * distances.stride + (distances.columns - 1) / 2 - position;
        task.bias_stride = distances.stride;
        task.bias_of_position = -1;
    }
    if (const Matrix& bias = args.bias_by_token; bias.rows > 0) {
        task.bias_stride = bias.columns / args.heads;
        task.bias_of_position = bias.stride;
        task.bias = floats(bias) + (piece.sequence->row_begin + piece.row_begin) * bias.stride + piece.kv_head * group * task.bias_stride;
    }
    return task;
}

void CpuBackend::execute(const AttentionArgs& args) {
    const auto& cache = static_cast<const CpuKvCache&>(args.cache);
    cut_attention(args);
    const std::int64_t group = args.heads / args.kv_heads;
    const std::int64_t longest = longest_context(args.step);
    const std::int64_t rows = std::max(kernels_.attention_rows, group);
    // An odd number of cache lines, so that a column of scores is spread over the sets of the first-level cache.
    const std::int64_t score_stride = ((longest + kv_block_size - 1) / kv_block_size | 1) * kv_block_size;
    // For each thread its scores; after all scores, for each thread its queries in bfloat16 or int8.
    const std::int64_t query_floats = std::max((args.head_dim + 1) / 2, int8_query_bytes(args.head_dim) / 4);
    float* const scores_of_all = score_scratch_.floats(pool_.threads() * rows * (score_stride + query_floats));
    float* const queries_of_all = scores_of_all + pool_.threads() * rows * score_stride;
    const auto attend = int8_attention_ != nullptr ? int8_attention_->run : kernels_.attention;

    // bfloat16 rows are converted piece by piece, unless the kernel writes them. The scale of an int8 row is known only when all
    // of its heads are computed.
    const bool is_bfloat16 = args.out.format == Format::bfloat16;
    const bool writes_bfloat16 = is_bfloat16 && kernels_.attention_writes_bfloat16 && cache.layout() == KvLayout::bfloat16_pairs;
    const bool narrows_pieces = is_bfloat16 && !writes_bfloat16;
    const bool narrows_rows = args.out.format == Format::int8_rows;
    const std::int64_t piece_columns = group * args.head_dim;
    const std::int64_t piece_floats = rows * args.head_dim;
    Matrix attended = args.out;
    if (narrows_rows) {
        attended = {.data = attended_scratch_.floats(args.out.rows * args.out.columns),
                    .format = Format::float32,
                    .rows = args.out.rows,
                    .columns = args.out.columns,
                    .stride = args.out.columns};
    } else if (narrows_pieces) {
        attended_scratch_.floats(pool_.threads() * piece_floats);
    }
    const auto place_of = [&](const AttentionPiece& piece) {
        return attended.slice_rows(piece.sequence->row_begin + piece.row_begin, piece.rows)
            .slice_columns(piece.kv_head * piece_columns, piece_columns);
    };
    const auto pieces = static_cast<std::int64_t>(attention_pieces_.size());
    // A thread claims several pieces only if that leaves enough for the others. Rows in scratch are converted before the next piece.
    const std::int64_t together = narrows_pieces || int8_attention_ != nullptr
                                      ? 1
                                      : std::clamp<std::int64_t>(pieces / (4 * pool_.threads()), 1, kernels_.attention_tasks);
    pool_.run(pieces, together, [&](std::int64_t begin, std::int64_t end, int thread) {
        std::array<AttentionTask, attention_tasks_max> tasks;
        for (std::int64_t index = begin; index < end; ++index) {
            const AttentionPiece& piece = attention_pieces_[static_cast<std::size_t>(index)];
            const Matrix out = narrows_pieces ? Matrix{.data = reinterpret_cast<float*>(attended_scratch_.data()) + thread * piece_floats,
                                                       .format = Format::float32,
                                                       .rows = piece.rows,
                                                       .columns = piece_columns,
                                                       .stride = piece_columns}
                                              : place_of(piece);
            AttentionTask& task = tasks[static_cast<std::size_t>(index - begin)];
            task = attention_task(args, piece, longest);
            task.out_stride = out.stride;
            task.out = writes_bfloat16 ? nullptr : floats(out);
            task.out_bfloat16 = writes_bfloat16 ? row_of(out, 0) : nullptr;
            task.scores = scores_of_all + thread * rows * score_stride;
            task.score_stride = score_stride;
            task.queries = reinterpret_cast<std::byte*>(queries_of_all + thread * rows * query_floats);
        }
        attend(std::span(tasks).first(static_cast<std::size_t>(end - begin)));
        if (!narrows_pieces) return;
        const AttentionTask& task = tasks.front();
        const Matrix place = place_of(attention_pieces_[static_cast<std::size_t>(begin)]);
        for (std::int64_t i = 0; i < place.rows; ++i) store_row(place, i, task.out + i * task.out_stride);
    });
    if (narrows_rows) store_rows(attended, args.out);
}

}  // namespace lorry::kernels::cpu
