// Launches the low-rank updates of all row groups: one pass of the pool for A x (shrink), one for B (A x) (expand).
#include <algorithm>

#include "kernels/cpu/backend.h"
#include "schema/check.h"

namespace lorry::kernels::cpu {

namespace {

constexpr std::int64_t piece_rows = 48;
constexpr std::int64_t piece_rows_expand = 12;  // a low rank makes much output of little weight: longer stretches of fewer rows
constexpr std::int64_t piece_multiply_adds = 200'000;

// Panels of `panels` that are together worth a piece.
std::int64_t panels_per_piece(const Panels& panels, std::int64_t rows) {
    return std::max<std::int64_t>(1, piece_multiply_adds / (rows * panels.in_features * panels.width));
}

}  // namespace

void CpuBackend::cut_lora(const LoraArgs& args) {
    lora_shrink_.clear();
    lora_expand_.clear();
    const auto cut = [](std::vector<LoraPiece>& pieces, const LoraGroup& group, const CpuLora::Part* part, const Panels& panels) {
        const std::int64_t rows_max = part == nullptr ? piece_rows : piece_rows_expand;
        for (std::int64_t row = 0; row < group.row_count; row += rows_max) {
            const std::int64_t rows = std::min(rows_max, group.row_count - row);
            const std::int64_t step = panels_per_piece(panels, rows);
            for (std::int64_t panel = 0; panel < panels.count(); panel += step) {
                pieces.push_back({&group, part, group.row_begin + row, rows, panel, std::min(panels.count(), panel + step)});
            }
        }
    };
    for (const LoraGroup& group : args.groups) {
        if (group.lora == nullptr) continue;
        const auto& lora = static_cast<const CpuLora&>(*group.lora);
        cut(lora_shrink_, group, nullptr, lora.a());
        for (const CpuLora::Part& part : lora.parts()) cut(lora_expand_, group, &part, part.b);
    }
}

Matrix CpuBackend::widened(const Matrix& in, std::span<const LoraGroup> groups) {
    if (in.format == Format::float32) return in;
    widened_scratch_.resize(std::max(widened_scratch_.size(), static_cast<std::size_t>(in.rows * in.columns)));
    const Matrix out{.data = widened_scratch_.data(), .rows = in.rows, .columns = in.columns, .stride = in.columns};
    for (const LoraGroup& group : groups) {
        if (group.lora == nullptr) continue;
        pool_.run(group.row_count, piece_rows, [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t row = group.row_begin + begin; row < group.row_begin + end; ++row)
                load_row(in, row, widened_scratch_.data() + row * out.stride);
        });
    }
    return out;
}

void CpuBackend::lora(const LoraArgs& args) {
    CHECK(args.out.rows == args.in.rows, "lora: out has a row for each row of in");
    CHECK(args.out.format == Format::float32, "lora: out is float32");
    std::int64_t rank_max = 0;
    std::int64_t row_end = 0;
    for (const LoraGroup& group : args.groups) {
        CHECK(group.row_begin >= row_end && group.row_begin + group.row_count <= args.in.rows, "lora: groups ascend within the rows");
        row_end = group.row_begin + group.row_count;
        if (group.lora == nullptr) continue;
        const auto& lora = static_cast<const CpuLora&>(*group.lora);
        CHECK(lora.a().in_features == args.in.columns, "lora: in is [rows, in_features]");
        for (const CpuLora::Part& part : lora.parts()) {
            CHECK(part.out_begin >= 0 && part.out_begin + part.b.out_features <= args.out.columns, "lora: a part lies in the outputs");
        }
        rank_max = std::max(rank_max, lora.rank_sum());
    }
    if (rank_max == 0) return;
    cut_lora(args);
    const auto scratch = static_cast<std::size_t>(args.in.rows * rank_max);
    if (lora_scratch_.size() < scratch) lora_scratch_.resize(std::max(scratch, lora_scratch_.size() * 2));

    const Matrix inputs = widened(args.in, args.groups);
    const auto* const in = static_cast<const float*>(inputs.data);
    auto* const out = static_cast<float*>(args.out.data);
    pool_.run(static_cast<std::int64_t>(lora_shrink_.size()), 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t index = begin; index < end; ++index) {
            const LoraPiece& piece = lora_shrink_[static_cast<std::size_t>(index)];
            const Panels& a = static_cast<const CpuLora&>(*piece.group->lora).a();
            kernels_.shrink({.in = in + piece.row_begin * inputs.stride,
                             .in_stride = inputs.stride,
                             .panels = a.memory.data(),
                             .bfloat16 = a.storage == Storage::bfloat16,
                             .out = lora_scratch_.data() + piece.row_begin * rank_max,
                             .out_stride = rank_max,
                             .rows = piece.rows,
                             .in_features = a.in_features,
                             .out_features = a.out_features},
                            piece.panel_begin, piece.panel_end);
        }
    });
    pool_.run(static_cast<std::int64_t>(lora_expand_.size()), 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t index = begin; index < end; ++index) {
            const LoraPiece& piece = lora_expand_[static_cast<std::size_t>(index)];
            const Panels& b = piece.part->b;
            kernels_.matmul({.in = lora_scratch_.data() + piece.row_begin * rank_max + piece.part->rank_begin,
                             .in_stride = rank_max,
                             .panels = b.memory.data(),
                             .bfloat16 = b.storage == Storage::bfloat16,
                             .out = out + piece.row_begin * args.out.stride + piece.part->out_begin,
                             .out_stride = args.out.stride,
                             .accumulate = true,
                             .rows = piece.rows,
                             .in_features = b.in_features,
                             .out_features = b.out_features},
                            piece.panel_begin, piece.panel_end);
        }
    });
}

}  // namespace lorry::kernels::cpu
