// The lora op: makes the work lists of the low-rank updates; lora.cu computes them.
#include <algorithm>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/views.h"
#include "schema/check.h"

namespace lorry::kernels::cuda {

// Converts rows of fp8 to the format of the weights, which the low-rank updates read.
View CudaBackend::widened(const Matrix& in) {
    // For the most rows that `in` may have: a graph would become useless if this memory moved.
    const std::int64_t rows_most = in.rows + in.spare_rows;
    const View out{widened_scratch_.of<std::byte>(static_cast<std::size_t>(rows_most * in.columns) * bytes_of(weights_)), weights_,
                   in.columns};
    launch(WidenTask{.out = out, .in = view_of(in), .rows = int_of(rows_of(in, in)), .columns = int_of(in.columns)});
    return out;
}

void CudaBackend::execute(const LoraArgs& args) {
    CHECK(args.in.format == weights_ || args.in.format == Format::fp8_rows, "lora: in has the format of the weights or is fp8");
    lora_shapes_.clear();
    std::int64_t rank_sum_max = 0;
    std::int64_t out_features_max = 0;
    for (const LoraGroup& group : args.groups) {
        lora_shapes_.emplace_back();
        if (group.lora == nullptr) continue;
        const auto& lora = static_cast<const CudaLora&>(*group.lora);
        for (const CudaLora::Part& part : lora.parts()) out_features_max = std::max(out_features_max, part.out_features);
        lora_shapes_.back() = {.rank_sum = lora.rank_sum(), .parts = std::ssize(lora.parts())};
        rank_sum_max = std::max(rank_sum_max, lora.rank_sum());
    }
    const std::int64_t split_features = lora_split_features(args.in.columns);
    LoraPlan& plan = lora_plan_;
    const std::int64_t splits = weights_ == Format::float32 ? 1 : ceil_div(args.in.columns, split_features);
    plan_lora(args.groups, lora_shapes_, splits, has_works(), plan);
    if (plan.shrink.empty()) return;
    const View in = args.in.format == Format::fp8_rows ? widened(args.in) : view_of(args.in);
    const auto tables_of = [&](const std::vector<LoraPiece>& pieces) {
        std::vector<LoraTable>& tables = lora_tables_;
        tables.clear();
        for (const LoraPiece& piece : pieces) {
            const auto& lora = static_cast<const CudaLora&>(*args.groups[static_cast<std::size_t>(piece.group)].lora);
            tables.push_back(lora.table(lora.parts()[static_cast<std::size_t>(piece.part)]));
            tables.back().row_begin = piece.row_begin;
            tables.back().row_count = piece.row_count;
            tables.back().splits = piece.splits;
            tables.back().sums_begin = piece.sums_begin;
        }
        return step().tables.put(tables);
    };
    const LoraWork work{.shrink = tables_of(plan.shrink),
                        .expand = tables_of(plan.expand),
                        .shrink_count = int_of(std::ssize(plan.shrink)),
                        .expand_count = int_of(std::ssize(plan.expand)),
                        .sums = lora_sums_.of<float>(static_cast<std::size_t>(plan.sums))};
    LoraTask task{.out = view_of(args.out),
                  .in = in,
                  .weights = weights_,
                  .in_features = int_of(args.in.columns),
                  .a_stride = int_of(round_up(args.in.columns, lora_multiple)),
                  .split_features = int_of(split_features)};
    if (!put_in_place(task, work, lora_size(step_rows(), args.out.columns, splits))) {
        task.work = step().tables.put_one(work);
        task.size = {.shrink = work.shrink_count,
                     .expand = work.expand_count,
                     .rank_sum = int_of(rank_sum_max),
                     .out_features = int_of(out_features_max),
                     .splits = plan.shrink.front().splits};
    }
    launch(task);
}

bool CudaBackend::put_in_place(LoraTask& task, const LoraWork& work, const LoraSize& size) {
    const auto& works = step().lora_works;
    LoraTask placed = task;
    placed.size = size;
    const std::int64_t index = step().loras++;
    if (taken_down_ != nullptr) {
        CHECK(index < lora_places_, "a step is recorded with as many low-rank updates as it ran with before");
        placed.work = works.device + index;
    } else if (graph_ != nullptr) {
        placed.work = graph_->place_of(placed, follower_);
    }
    if (placed.work == nullptr) return false;
    CHECK(placed.work >= works.device && placed.work - works.device < step().lora_places, "a graph's work lists are among the step's");
    works.host[placed.work - works.device] = work;
    task = placed;
    return true;
}

}  // namespace lorry::kernels::cuda
