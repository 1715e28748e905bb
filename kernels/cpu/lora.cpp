// The lora op: the low-rank updates of all row groups, in one pass of the thread pool for A x (shrink) and one for B (A x) (expand).
// Where an activated matmul adds the updates itself (matmul.cpp), it gets them from here too.
//
// If the processor multiplies pairs of bfloat16, both passes read bfloat16: A x is rounded to it like a matmul's inputs, and int8 inputs
// are used as integers, with their row's scale applied to the sum. Otherwise both passes read float32.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/views.h"

namespace lorry::kernels::cpu {

namespace {

constexpr std::int64_t shrink_rows_least = 16;
// A low rank has little weight and much output: few rows at a time, as many as share each load of a weight, so that their outputs stay in
// the first-level cache.
constexpr std::int64_t expand_rows_of_floats = 12;
constexpr std::int64_t shrink_multiply_adds = 800'000;  // of a piece, which may have to convert its inputs
constexpr std::int64_t expand_multiply_adds = 200'000;

void clear(const Matrix& matrix, std::int64_t begin, std::int64_t end, std::int64_t column, std::int64_t columns) {
    for (std::int64_t row = begin; row < end; ++row) std::fill_n(floats(matrix) + row * matrix.stride + column, columns, 0.0F);
}

}  // namespace

std::int64_t CpuBackend::shrink_rows() const {
    return lora_by_pairs_ ? std::max(shrink_rows_least, kernels_.bfloat16_shrink->rows_together) : shrink_rows_least;
}

void CpuBackend::cut_lora(std::vector<LoraPiece>& pieces, const LoraGroup& group, const CpuLora::Part* part, const Panels& panels,
                          const LoraCut& cut) {
    for (std::int64_t row = 0; row < group.row_count; row += cut.rows_max) {
        const std::int64_t rows = std::min(cut.rows_max, group.row_count - row);
        // As many panels as make a piece worthwhile.
        const std::int64_t step = std::max<std::int64_t>(1, cut.multiply_adds / (rows * panels.in_features * panels.width));
        for (std::int64_t panel = 0; panel < panels.count(); panel += step) {
            pieces.push_back({&panels, part, group.row_begin + row, rows, panel, std::min(panels.count(), panel + step)});
        }
    }
}

Matrix CpuBackend::shrink_inputs(const Matrix& in, int thread) {
    const Format format = lora_by_pairs_ ? Format::bfloat16 : Format::float32;
    if (in.format == format) return in;
    const Matrix out{.data = lora_inputs_.data() + thread * shrink_rows() * in.columns * static_cast<std::int64_t>(sizeof(float)),
                     .format = format,
                     .rows = in.rows,
                     .columns = in.columns,
                     .stride = in.columns};
    for (std::int64_t row = 0; row < in.rows; ++row) {
        if (!lora_by_pairs_) {
            load_row(in, row, reinterpret_cast<float*>(row_of(out, row)));
        } else if (in.format == Format::int8_rows) {
            kernels_.int8_to_bfloat16(row_of(in, row), row_of(out, row), in.columns);
        } else {
            kernels_.to_bfloat16(reinterpret_cast<const float*>(row_of(in, row)), row_of(out, row), in.columns);
        }
    }
    return out;
}

void CpuBackend::shrink(const LoraPiece& piece, const Matrix& in, const Matrix& out, const std::byte* next, int thread) {
    const Panels& a = *piece.panels;
    const Matrix rows = in.slice_rows(piece.row_begin, piece.rows);
    float* const sums = reinterpret_cast<float*>(lora_sums_.data()) + thread * shrink_rows() * out.columns;
    const PanelProduct product{.panels = a,
                               .begin = piece.panel_begin,
                               .end = piece.panel_end,
                               .in = shrink_inputs(rows, thread),
                               .out = sums + piece.panel_begin * a.width,
                               .out_stride = out.columns,
                               .next = next};
    const std::int64_t count = piece.panel_end - piece.panel_begin;
    if (lora_by_pairs_) {
        kernels_.bfloat16_shrink->matmul(dot_task(product), 0, count);
    } else {
        kernels_.shrink(matmul_task(product), 0, count);
    }

    const std::int64_t column = piece.panel_begin * a.width;
    const std::int64_t columns = std::min(a.out_features, piece.panel_end * a.width) - column;
    for (std::int64_t row = 0; row < piece.rows; ++row) {
        float* const from = sums + row * out.columns + column;
        if (lora_by_pairs_ && in.format == Format::int8_rows) {
            float scale = 0.0F;
            std::memcpy(&scale, row_of(rows, row) + int8_scale_offset(in.columns), sizeof scale);
            for (std::int64_t i = 0; i < columns; ++i) from[i] *= scale;
        }
        store_row(out.slice_columns(column, columns), piece.row_begin + row, from);
    }
}

void CpuBackend::expand(const LoraPiece& piece, const Matrix& in, const Matrix& out, bool accumulate, const std::byte* next) const {
    const Panels& b = *piece.panels;
    multiply({.panels = b,
              .begin = piece.panel_begin,
              .end = piece.panel_end,
              .in = in.slice_rows(piece.row_begin, piece.rows).slice_columns(piece.part->rank_begin, b.in_features),
              .out = floats(out) + piece.row_begin * out.stride + piece.part->out_begin + piece.panel_begin * b.width,
              .out_stride = out.stride,
              .accumulate = accumulate,
              .next = next},
             lora_by_pairs_ ? kernels_.bfloat16_dot->matmul : nullptr);
}

// Calls work(piece, next, thread) for all pieces; next: the weights of the following piece, or null.
template <class Work>
void CpuBackend::run_lora(std::span<const LoraPiece> pieces, const Work& work) {
    pool_.run(std::ssize(pieces), 1, [&](std::int64_t begin, std::int64_t end, int thread) {
        for (auto index = static_cast<std::size_t>(begin); index < static_cast<std::size_t>(end); ++index) {
            const LoraPiece* const after = index + 1 < pieces.size() ? &pieces[index + 1] : nullptr;
            work(pieces[index], after == nullptr ? nullptr : after->panels->panel(after->panel_begin), thread);
        }
    });
}

Matrix CpuBackend::shrink_all(const Matrix& in, std::span<const LoraGroup> groups) {
    std::int64_t rank_max = 0;
    for (const LoraGroup& group : groups) {
        if (group.lora != nullptr) rank_max = std::max(rank_max, group.lora->rank_sum());
    }
    const Matrix shrunk{.data = lora_scratch_.floats(in.rows * rank_max),
                        .format = lora_by_pairs_ ? Format::bfloat16 : Format::float32,
                        .rows = in.rows,
                        .columns = rank_max,
                        .stride = rank_max};
    if (rank_max == 0) return shrunk;
    lora_shrink_.clear();
    for (const LoraGroup& group : groups) {
        if (group.lora == nullptr) continue;
        cut_lora(lora_shrink_, group, nullptr, static_cast<const CpuLora&>(*group.lora).a(), {shrink_rows(), shrink_multiply_adds});
    }
    const std::int64_t piece_rows = shrink_rows() * pool_.threads();
    lora_sums_.floats(piece_rows * rank_max);
    lora_inputs_.floats(piece_rows * in.columns);
    run_lora(lora_shrink_, [&](const LoraPiece& piece, const std::byte* next, int thread) { shrink(piece, in, shrunk, next, thread); });
    return shrunk;
}

void CpuBackend::expand_groups(const LoraUpdates& updates, const Matrix& out, bool accumulate) {
    const std::int64_t rows_max = lora_by_pairs_ ? kernels_.bfloat16_dot->rows_together : expand_rows_of_floats;
    lora_expand_.clear();
    for (const LoraGroup& group : updates.groups) {
        if (group.lora == nullptr) continue;
        for (const CpuLora::Part& part : static_cast<const CpuLora&>(*group.lora).parts())
            cut_lora(lora_expand_, group, &part, part.b, {rows_max, expand_multiply_adds});
    }
    run_lora(lora_expand_,
             [&](const LoraPiece& piece, const std::byte* next, int) { expand(piece, updates.shrunk, out, accumulate, next); });
}

void CpuBackend::execute(const LoraArgs& args) {
    const Matrix shrunk = shrink_all(args.in, args.groups);
    if (shrunk.columns > 0) expand_groups({.groups = args.groups, .shrunk = shrunk, .all = {}}, args.out, true);
}

void CpuBackend::expand_all(const LoraUpdates& updates, std::int64_t width, const Matrix& out) {
    std::int64_t done = 0;
    for (const LoraGroup& group : updates.groups) {
        if (group.lora == nullptr) continue;
        clear(out, done, group.row_begin, 0, out.columns);
        done = group.row_begin + group.row_count;
        for (std::int64_t column = 0; column < out.columns; column += width) {
            const CpuLora::Part* const part = static_cast<const CpuLora&>(*group.lora).part_at(column);
            const std::int64_t covered = part == nullptr ? 0 : part->b.out_features;
            clear(out, group.row_begin, done, column + covered, width - covered);
        }
    }
    clear(out, done, out.rows, 0, out.columns);
    expand_groups(updates, out, false);
}

bool CpuBackend::are_of_parts(std::span<const LoraGroup> groups, std::int64_t width) {
    return std::ranges::all_of(groups, [&](const LoraGroup& group) {
        if (group.lora == nullptr) return true;
        return std::ranges::all_of(static_cast<const CpuLora&>(*group.lora).parts(),
                                   [&](const CpuLora::Part& part) { return part.out_begin % width == 0 && part.b.out_features <= width; });
    });
}

void CpuBackend::expand_columns(const LoraUpdates& updates, const LoraColumns& columns, const Matrix& out) const {
    std::array<UpdateTask, 32> tasks;
    std::size_t count = 0;
    std::int64_t done = 0;
    for (const LoraGroup& group : updates.groups) {
        const std::int64_t begin = std::max<std::int64_t>(group.row_begin - columns.row_begin, 0);
        const std::int64_t end = std::min(group.row_begin + group.row_count - columns.row_begin, out.rows);
        if (begin >= end || group.lora == nullptr) continue;
        clear(out, done, begin, 0, out.columns);
        done = end;
        const Matrix rows = updates.shrunk.slice_rows(columns.row_begin + begin, end - begin);
        for (std::int64_t of = 0; of < columns.parts; ++of) {
            const CpuLora::Part* const part = static_cast<const CpuLora&>(*group.lora).part_at(of * columns.part_features);
            const std::int64_t first = of * columns.panels * columns.width;
            const std::int64_t covered = part == nullptr ? 0 : std::clamp<std::int64_t>(part->b.count() - columns.panel, 0, columns.panels);
            clear(out, begin, end, first + covered * columns.width, (columns.panels - covered) * columns.width);
            if (covered == 0) continue;
            const Matrix in = rows.slice_columns(part->rank_begin, part->b.in_features);
            for (std::int64_t i = 0; i < covered; ++i) {
                tasks[count++] = {.in = row_of(in, 0),
                                  .in_stride = stride_bytes(in),
                                  .panel = part->b.panel(columns.panel + i),
                                  .rows = in.rows,
                                  .in_features = in.columns,
                                  .out = floats(out) + begin * out.stride + first + i * columns.width,
                                  .out_stride = out.stride};
                if (count < tasks.size()) continue;
                kernels_.bfloat16_dot->updates(tasks);
                count = 0;
            }
        }
    }
    kernels_.bfloat16_dot->updates(std::span(tasks).first(count));
    clear(out, done, out.rows, 0, out.columns);
}

}  // namespace lorry::kernels::cpu
