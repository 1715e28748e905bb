// Plans one step: running sequences oldest first, decodes before prefills; then waiting sequences that start.
#include "engine/scheduler.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "schema/check.h"

namespace lorry::engine {
namespace {

std::int64_t blocks_for(std::int64_t tokens, std::int64_t block_size) { return (tokens + block_size - 1) / block_size; }

// How many of the rows [begin, begin + rows) need logits.
std::int64_t sample_rows_of(const SequenceView& sequence, std::int64_t begin, std::int64_t rows) {
    std::int64_t count = 0;
    if (sequence.score_begin) {
        const std::int64_t first = std::max(begin, *sequence.score_begin);
        count += std::max<std::int64_t>(0, std::min(begin + rows, sequence.score_end) - first);
    }
    if (sequence.samples && begin + rows == sequence.known) ++count;
    return count;
}

// What is left of a step's limits while the step is planned.
struct Budget {
    std::int64_t rows;
    std::int64_t sample_rows;
    std::int64_t blocks;

    // The most rows of this sequence from `begin` on that the limits allow.
    std::int64_t rows_for(const SequenceView& sequence, std::int64_t begin) const {
        std::int64_t count = std::min(sequence.known - begin, rows);
        const std::int64_t excess = sample_rows_of(sequence, begin, count) - sample_rows;
        if (excess > 0) count -= excess;  // rows that need logits come last, so each row less is one of them
        return std::max<std::int64_t>(0, count);
    }
    void take(const SequenceView& sequence, std::int64_t begin, std::int64_t count, std::int64_t new_blocks) {
        rows -= count;
        sample_rows -= sample_rows_of(sequence, begin, count);
        blocks -= new_blocks;
        CHECK(rows >= 0 && sample_rows >= 0 && blocks >= 0, "a plan stays within its budget");
    }
};

class Planner {
public:
    Planner(std::span<const SequenceView> running, std::int64_t blocks_available, const StepLimits& limits, StepPlan& plan)
        : running_(running), limits_(limits), plan_(plan), budget_{limits.rows, limits.sample_rows, blocks_available} {
        order_.resize(running.size());
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        std::ranges::sort(order_, {}, [&](std::size_t i) { return std::tuple(running[i].priority, running[i].arrival); });
    }

    void plan_running() {
        for (const SequenceView& sequence : running_) note_written(sequence.blocks_queued);
        for (const bool decodes : {true, false}) {
            for (std::size_t at = 0; at < order_.size();) {
                const bool preempted_itself = is_decode(running_[order_[at]]) == decodes && !plan_one(at);
                if (!preempted_itself) ++at;  // otherwise the next sequence is at this index now
            }
        }
    }

    void plan_waiting(std::span<const SequenceView> waiting) {
        if (!plan_.preempt.empty()) return;  // the preempted sequences come first, in a later step
        auto places = limits_.sequences - static_cast<std::int64_t>(running_.size());
        for (std::size_t i = 0; i < waiting.size() && places > 0; ++i) {
            const SequenceView& next = waiting[i];
            if (next.next_is_reusable && std::ranges::find(plan_.written, next.blocks_ahead.front()) != plan_.written.end()) continue;
            // All its known tokens must fit, and each running sequence keeps a block to grow into. Otherwise it would soon be preempted.
            const std::int64_t needed = blocks_for(next.known, limits_.block_size) - next.blocks + next.blocks_idle;
            const std::int64_t in_use = static_cast<std::int64_t>(running_.size() + plan_.starting.size());
            if (needed + in_use > budget_.blocks - next.blocks_kept) return;
            const std::int64_t rows = budget_.rows_for(next, next.computed);
            if (rows == 0) return;
            const std::int64_t new_blocks = blocks_for(next.computed + rows, limits_.block_size) - next.blocks;
            plan_.starting.push_back({i, rows, new_blocks});
            take(next, rows, new_blocks + next.blocks_idle);
            --places;
        }
    }

private:
    static bool is_decode(const SequenceView& sequence) { return sequence.known - sequence.computed == 1; }

    // False if the sequence itself was preempted.
    bool plan_one(std::size_t at) {
        const SequenceView& sequence = running_[order_[at]];
        std::int64_t rows = budget_.rows_for(sequence, sequence.computed);
        if (rows == 0) return true;
        // If the held and the available blocks do not suffice, the latest sequences are preempted, in the end this one itself.
        const auto fitting = [&] { return (sequence.blocks + budget_.blocks) * limits_.block_size - sequence.computed; };
        while (fitting() < 1) {
            if (!preempt_last(at)) return false;
        }
        rows = std::min(rows, fitting());
        const std::int64_t new_blocks =
            std::max<std::int64_t>(0, blocks_for(sequence.computed + rows, limits_.block_size) - sequence.blocks);
        plan_.running.push_back({order_[at], rows, new_blocks});
        take(sequence, rows, new_blocks);
        return true;
    }

    void take(const SequenceView& sequence, std::int64_t rows, std::int64_t new_blocks) {
        budget_.take(sequence, sequence.computed, rows, new_blocks);
        const std::int64_t completed = (sequence.computed + rows) / limits_.block_size - sequence.computed / limits_.block_size;
        const auto ahead = sequence.blocks_ahead.first(std::min(sequence.blocks_ahead.size(), static_cast<std::size_t>(completed)));
        note_written(ahead);
    }

    void note_written(std::span<const BlockHash> blocks) { plan_.written.insert(plan_.written.end(), blocks.begin(), blocks.end()); }

    // Preempts the latest sequence that has no rows in this plan. False if that is the one at `at`.
    bool preempt_last(std::size_t at) {
        std::size_t victim = order_.size() - 1;
        while (victim > at && is_planned(order_[victim])) --victim;
        const std::size_t index = order_[victim];
        plan_.preempt.push_back(index);
        budget_.blocks += running_[index].blocks_sole;
        order_.erase(order_.begin() + static_cast<std::ptrdiff_t>(victim));
        return victim != at;
    }

    bool is_planned(std::size_t index) const {
        return std::ranges::any_of(plan_.running, [&](const PlannedRows& planned) { return planned.index == index; });
    }

    std::span<const SequenceView> running_;
    const StepLimits& limits_;
    StepPlan& plan_;
    Budget budget_;
    std::vector<std::size_t> order_;  // indices of running_ by (priority, arrival), without preempted ones
};

}  // namespace

void StepPlan::clear() {
    preempt.clear();
    running.clear();
    starting.clear();
    written.clear();
}

void plan_step(std::span<const SequenceView> running, std::span<const SequenceView> waiting, std::int64_t blocks_available,
               const StepLimits& limits, StepPlan& plan) {
    plan.clear();
    Planner planner(running, blocks_available, limits, plan);
    planner.plan_running();
    planner.plan_waiting(waiting);
}

}  // namespace lorry::engine
