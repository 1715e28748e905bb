// Plans one step: running sequences oldest first, decodes before prefills; then waiting sequences that start; then drafts. Large jobs have
// a share.
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
    if (sequence.whole) return rows > 0 ? sequence.mask_rows : 0;
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
    std::int64_t rows = 0;
    std::int64_t sample_rows = 0;
    std::int64_t blocks = 0;

    // The most rows of this sequence from its computed ones on that the limits allow.
    std::int64_t rows_for(const SequenceView& sequence) const {
        if (sequence.whole) return sequence.known <= rows && sequence.mask_rows <= sample_rows ? sequence.known : 0;
        std::int64_t count = std::min(sequence.known - sequence.computed, rows);
        const auto excess = [&] { return sample_rows_of(sequence, sequence.computed, count) - sample_rows; };
        // Rows without logits are before those with logits or, if tokens are forced after a scored prompt, between them.
        while (count > 0 && excess() > 0) count -= std::min(count, excess());
        return std::max<std::int64_t>(0, count);
    }
    void take(const SequenceView& sequence, std::int64_t count, std::int64_t new_blocks) {
        rows -= count;
        sample_rows -= sample_rows_of(sequence, sequence.computed, count);
        blocks -= new_blocks;
    }
};

class Planner {
public:
    Planner(std::span<const SequenceView> running, std::span<const SequenceView> waiting, std::int64_t blocks_available,
            const StepLimits& limits, StepPlan& plan)
        : running_(running), waiting_(waiting), limits_(limits), plan_(plan), budget_{limits.rows, limits.sample_rows, blocks_available} {
        others_waiting_ = std::ranges::count(waiting, false, &SequenceView::large);
        Budget left{limits.rows, limits.sample_rows, 0};  // by the others
        for (const auto views : {running, waiting}) {
            for (const SequenceView& view : views) {
                if (!view.large) left.take(view, view.known - view.computed, 0);
            }
        }
        const StepLimits share = limits.of_large();
        of_large_ = {.rows = limits.rows, .sample_rows = std::max(share.sample_rows, left.sample_rows), .blocks = share.blocks};
        const auto turn = [&](std::size_t i) { return std::tuple(running[i].priority, running[i].turn); };
        for (std::size_t i = 0; i < running.size(); ++i) {
            if (!running[i].large) continue;
            if (large_ == 0 || turn(i) < turn(oldest_large_)) oldest_large_ = i;
            ++large_;
            of_large_.blocks -= running[i].blocks_sole;
        }
        // Those that come last are preempted first.
        const auto yields = [&](std::size_t i) { return of_large_.blocks < 0 && running[i].large && i != oldest_large_; };
        order_.resize(running.size());
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        std::ranges::sort(order_, {}, [&](std::size_t i) { return std::tuple(yields(i), turn(i)); });
        // A row for each running large sequence, if the others leave it: one that decodes would otherwise wait with its blocks held.
        if (have_others_rows()) of_large_.rows = std::max(share.rows, std::min(large_, left.rows));
    }

    // Takes places and blocks from large jobs that hold more than their share, for the sequences that wait for them.
    void preempt_large() {
        if (others_waiting_ == 0) return;
        const SequenceView& first = *std::ranges::find(waiting_, false, &SequenceView::large);
        const auto places = [&] { return limits_.sequences - std::ssize(order_); };
        while (large_ > 1) {
            const bool frees_place = places() < others_waiting_ && large_ > limits_.of_large().sequences;
            const bool frees_blocks = !fits(first) && of_large_.blocks < 0;
            if (!frees_place && !frees_blocks) return;
            preempt(last_large());
        }
    }

    // Rows for the text that is overdue, if nothing else keeps it from starting: otherwise a text that cannot start would take rows in
    // every step.
    void reserve() {
        const auto found = std::ranges::find(waiting_, true, &SequenceView::overdue);
        if (found == waiting_.end()) return;
        const bool may_start = plan_.preempt.empty() && std::ssize(running_) < limits_.sequences && has_share(*found) && fits(*found);
        if (!may_start || budget_.rows_for(*found) == 0) return;
        overdue_ = static_cast<std::size_t>(found - waiting_.begin());
        reserved_ = {.rows = found->known, .sample_rows = found->mask_rows, .blocks = 0};
        budget_.rows -= reserved_.rows;
        budget_.sample_rows -= reserved_.sample_rows;
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

    void plan_waiting() {
        if (!plan_.preempt.empty()) return;  // the preempted sequences come first, in a later step
        auto places = limits_.sequences - static_cast<std::int64_t>(running_.size());
        budget_.rows += reserved_.rows;
        budget_.sample_rows += reserved_.sample_rows;
        for (std::size_t turn = 0; turn < waiting_.size() && places > 0; ++turn) {
            const std::size_t i = waiting_at(turn);
            const SequenceView& next = waiting_[i];
            if (next.next_is_reusable && std::ranges::find(plan_.written, next.blocks_ahead.front()) != plan_.written.end()) continue;
            if (!has_share(next)) continue;
            if (!fits(next)) {
                plan_.lacks_blocks = true;
                return;
            }
            const std::int64_t rows = rows_for(next);
            if (rows == 0 && next.whole && !plan_.held_up) plan_.held_up = i;
            if (rows == 0 && next.large && others_waiting_ > 0) continue;
            // A shorter text may fit. The first one starts at the latest in the next step, if no other sequence runs on.
            if (rows == 0 && next.whole && running_.empty() && !plan_.starting.empty()) continue;
            if (rows == 0) return;
            const std::int64_t new_blocks = blocks_for(next.computed + rows, limits_.block_size) - next.blocks;
            plan_.starting.push_back({i, rows, new_blocks});
            take(next, rows, new_blocks + next.blocks_idle);
            (next.large ? large_ : others_waiting_) += next.large ? 1 : -1;
            --places;
        }
    }

    void plan_drafts() {
        if (plan_.lacks_blocks) return;
        for (PlannedRows& planned : plan_.running) {
            const SequenceView& sequence = running_[planned.index];
            if (sequence.drafts == 0 || sequence.computed + planned.rows < sequence.known) continue;
            // Each sequence keeps a block to grow into.
            const std::int64_t in_use = std::ssize(order_) + std::ssize(plan_.starting);
            const std::int64_t spare = std::max<std::int64_t>(0, budget_.blocks - in_use);
            const std::int64_t fitting = (sequence.blocks + planned.new_blocks + spare) * limits_.block_size - sequence.known;
            planned.drafts = std::min({sequence.drafts, budget_.rows, budget_.sample_rows, fitting});
            if (sequence.large) planned.drafts = std::min(planned.drafts, std::max<std::int64_t>(0, of_large_.rows));
            const std::int64_t blocks = blocks_for(sequence.known + planned.drafts, limits_.block_size);
            const std::int64_t new_blocks = std::max<std::int64_t>(0, blocks - sequence.blocks - planned.new_blocks);
            planned.new_blocks += new_blocks;
            budget_.rows -= planned.drafts;
            budget_.sample_rows -= planned.drafts;
            budget_.blocks -= new_blocks;
            if (sequence.large) of_large_.rows -= planned.drafts;
        }
    }

private:
    // Whether sequences of other jobs have rows in this step: the running ones, and the first waiting one if there are blocks for it.
    bool have_others_rows() const {
        if (std::ranges::count(running_, false, &SequenceView::large) > 0) return true;
        const auto first = std::ranges::find(waiting_, false, &SequenceView::large);
        return first != waiting_.end() && fits(*first);
    }

    // The overdue text has the first turn.
    std::size_t waiting_at(std::size_t turn) const {
        if (!overdue_ || turn > *overdue_) return turn;
        return turn == 0 ? *overdue_ : turn - 1;
    }
    bool has_share(const SequenceView& waiting) const { return !waiting.large || others_waiting_ == 0 || is_within_share(waiting); }

    static bool is_decode(const SequenceView& sequence) { return sequence.known - sequence.computed == 1; }

    // Blocks that a waiting sequence takes from the pool until all its known tokens are computed.
    std::int64_t blocks_needed(const SequenceView& waiting) const {
        return blocks_for(waiting.known, limits_.block_size) - waiting.blocks + waiting.blocks_idle;
    }
    // All known tokens of a sequence that starts must fit, and each running one keeps a block to grow into. Otherwise it would soon be
    // preempted.
    bool fits(const SequenceView& waiting) const {
        const std::int64_t in_use = std::ssize(order_) + std::ssize(plan_.starting);
        return blocks_needed(waiting) + in_use <= budget_.blocks - waiting.blocks_kept;
    }
    bool is_within_share(const SequenceView& waiting) const {
        return large_ < limits_.of_large().sequences && (large_ == 0 || blocks_needed(waiting) <= of_large_.blocks);
    }
    std::int64_t rows_for(const SequenceView& sequence) const {
        const std::int64_t rows = budget_.rows_for(sequence);
        if (!sequence.large) return rows;
        // The last text within the share may go beyond it, as it cannot be cut.
        if (sequence.whole) return sequence.overdue || of_large_.rows > 0 ? rows : 0;
        return std::min(rows, of_large_.rows_for(sequence));
    }

    // False if the sequence itself was preempted.
    bool plan_one(std::size_t at) {
        const SequenceView& sequence = running_[order_[at]];
        std::int64_t rows = rows_for(sequence);
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
        budget_.take(sequence, rows, new_blocks);
        CHECK(budget_.rows >= 0 && budget_.sample_rows >= 0 && budget_.blocks >= 0, "a plan stays within its budget");
        if (sequence.large) of_large_.take(sequence, rows, new_blocks);
        const std::int64_t completed = (sequence.computed + rows) / limits_.block_size - sequence.computed / limits_.block_size;
        const auto ahead = sequence.blocks_ahead.first(std::min(sequence.blocks_ahead.size(), static_cast<std::size_t>(completed)));
        note_written(ahead);
    }

    void note_written(std::span<const BlockHash> blocks) { plan_.written.insert(plan_.written.end(), blocks.begin(), blocks.end()); }

    // Preempts the latest sequence that has no rows in this plan. False if that is the one at `at`.
    bool preempt_last(std::size_t at) {
        std::size_t victim = order_.size() - 1;
        while (victim > at && is_planned(order_[victim])) --victim;
        preempt(victim);
        return victim != at;
    }

    // The latest of several sequences of large jobs, as an index of order_.
    std::size_t last_large() const {
        std::size_t at = order_.size() - 1;
        while (!running_[order_[at]].large || order_[at] == oldest_large_) --at;
        return at;
    }

    // at: an index of order_.
    void preempt(std::size_t at) {
        const SequenceView& victim = running_[order_[at]];
        plan_.preempt.push_back(order_[at]);
        plan_.lacks_blocks = true;
        budget_.blocks += victim.blocks_sole;
        if (victim.large) {
            --large_;
            of_large_.blocks += victim.blocks_sole;
        }
        order_.erase(order_.begin() + static_cast<std::ptrdiff_t>(at));
    }

    bool is_planned(std::size_t index) const {
        return std::ranges::any_of(plan_.running, [&](const PlannedRows& planned) { return planned.index == index; });
    }

    std::span<const SequenceView> running_;
    std::span<const SequenceView> waiting_;
    const StepLimits& limits_;
    StepPlan& plan_;
    Budget budget_;
    std::optional<std::size_t> overdue_;  // of waiting_: the text that has reserved_ of the step
    Budget reserved_;
    Budget of_large_;                  // what large jobs may still take of it; blocks: negative if they hold more than their share
    std::int64_t large_ = 0;           // running sequences of large jobs
    std::size_t oldest_large_ = 0;     // of these, in running_
    std::int64_t others_waiting_ = 0;  // waiting sequences of other jobs that do not start in this plan
    // Indices of running_ without preempted ones, by (priority, turn). Large jobs that hold too many blocks come last.
    std::vector<std::size_t> order_;
};

}  // namespace

StepLimits StepLimits::of_large() const {
    const auto half = [](std::int64_t limit) { return std::max<std::int64_t>(1, limit / 2); };
    return {.rows = half(rows),
            .sample_rows = half(sample_rows),
            .sequences = half(sequences),
            .block_size = block_size,
            .blocks = half(blocks)};
}

void StepPlan::clear() {
    preempt.clear();
    running.clear();
    starting.clear();
    written.clear();
    lacks_blocks = false;
    held_up.reset();
}

void plan_step(std::span<const SequenceView> running, std::span<const SequenceView> waiting, std::int64_t blocks_available,
               const StepLimits& limits, StepPlan& plan) {
    plan.clear();
    Planner planner(running, waiting, blocks_available, limits, plan);
    planner.preempt_large();
    planner.reserve();
    planner.plan_running();
    planner.plan_waiting();
    planner.plan_drafts();
}

}  // namespace lorry::engine
