// What runs in the next step. One quantity, no phases: every running sequence's `computed` catches up with its `known` tokens under the
// step's budget; prefill, chunked prefill, decode, prefix reuse and preemption are this one arithmetic. Pure: no device, clock, I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/block_pool.h"

namespace lorry::engine {

// What the scheduler knows of a sequence. All counts are tokens unless said otherwise.
struct SequenceView {
    std::int64_t known = 0;                   // tokens that are to be computed
    std::int64_t computed = 0;                // for a waiting one: what shared or indexed blocks would give it
    std::int64_t blocks = 0;                  // blocks held; for a waiting one: blocks it would share
    std::int64_t blocks_idle = 0;             // waiting: of those, how many are nobody's now and count as available
    std::int64_t blocks_sole = 0;             // running: held by nobody else, so that preemption frees them
    bool samples = true;                      // its last known token's row needs logits
    std::optional<std::int64_t> score_begin;  // rows from here to score_end (exclusive) need logits too
    std::int64_t score_end = 0;
    std::span<const BlockHash> blocks_ahead;   // names of the full blocks of known tokens from `computed` on, for the prefix index
    std::span<const BlockHash> blocks_queued;  // running: names of the full blocks that queued steps complete
    bool next_is_reusable = false;             // waiting: the first of them may come from the index
    std::int64_t blocks_kept = 0;              // waiting: available ones that adapters of it and of those before it then keep
    std::int32_t priority = 0;                 // lower first
    std::uint64_t arrival = 0;
};

struct StepLimits {
    std::int64_t rows = 0;         // tokens per step
    std::int64_t sample_rows = 0;  // rows with logits per step
    std::int64_t sequences = 0;    // sequences that run at a time
    std::int64_t block_size = 0;
};

struct PlannedRows {
    std::size_t index = 0;        // in running or, for those that start, in waiting
    std::int64_t rows = 0;        // tokens [computed, computed + rows)
    std::int64_t new_blocks = 0;  // to be allocated first
};

struct StepPlan {
    std::vector<std::size_t> preempt;  // running sequences that give their blocks back and wait again
    std::vector<PlannedRows> running;
    std::vector<PlannedRows> starting;  // of waiting, in its order
    std::vector<BlockHash> written;     // blocks that this step or a queued one completes and the index will have after it
    bool empty() const { return running.empty() && starting.empty(); }
    void clear();
};

// waiting is in the order in which sequences should start; a prefix of it starts, less those whose next block another sequence writes in
// this very step or in a queued one: they find it in the index once that was read, instead of computing it again. With no step queued, a
// plan is empty only if nothing runs and the first waiting sequence does not fit into an empty pool. plan's vectors keep their capacity
// between steps.
void plan_step(std::span<const SequenceView> running, std::span<const SequenceView> waiting, std::int64_t blocks_available,
               const StepLimits& limits, StepPlan& plan);

}  // namespace lorry::engine
