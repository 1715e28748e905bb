// Decides what runs in the next step. There are no phases: in each step, every running sequence's `computed` advances towards its `known`
// tokens within the step's budget. Prefill, chunked prefill, decoding, prefix reuse and preemption all follow from this. Pure: no device,
// clock or I/O. Called by engine.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/block_pool.h"

namespace lorry::engine {

// What the scheduler knows about a sequence. Counts are in tokens unless stated otherwise.
struct SequenceView {
    std::int64_t known = 0;                   // tokens to be computed
    std::int64_t computed = 0;                // waiting: tokens that shared or indexed blocks would provide
    std::int64_t blocks = 0;                  // blocks held; waiting: blocks it would share
    std::int64_t blocks_idle = 0;             // waiting: how many of these are unheld now and count as available
    std::int64_t blocks_sole = 0;             // running: blocks that no other sequence holds, so that preemption frees them
    bool samples = true;                      // the row of its last known token needs logits
    std::optional<std::int64_t> score_begin;  // rows from here to score_end (exclusive) need logits, too
    std::int64_t score_end = 0;
    bool whole = false;                        // one step must compute all its tokens, and then it ends
    bool overdue = false;                      // waiting, whole: the running sequences have held it up for long enough
    std::int64_t drafts = 0;                   // guesses after the known tokens: rows of their own with logits, if the step has room
    std::int64_t mask_rows = 0;                // whole: how many of its rows need logits
    std::span<const BlockHash> blocks_ahead;   // hashes of the full blocks of known tokens from `computed` on, for the prefix index
    std::span<const BlockHash> blocks_queued;  // running: hashes of the full blocks that queued steps complete
    bool next_is_reusable = false;             // waiting: the first of blocks_ahead may come from the index
    std::int64_t blocks_kept = 0;              // waiting: available blocks that its adapter and those of sequences before it need
    std::int32_t priority = 0;                 // lower first
    std::uint64_t turn = 0;                    // smaller ones first
    bool large = false;                        // of a large job
};

struct StepLimits {
    std::int64_t rows = 0;         // tokens per step
    std::int64_t sample_rows = 0;  // rows with logits per step
    std::int64_t sequences = 0;    // running at a time
    std::int64_t block_size = 0;   // in tokens
    std::int64_t blocks = 0;       // of the whole cache

    // What sequences of large jobs may have together while others wait.
    StepLimits of_large() const;
};

struct PlannedRows {
    std::size_t index = 0;        // in running or, for those that start, in waiting
    std::int64_t rows = 0;        // tokens [computed, computed + rows)
    std::int64_t new_blocks = 0;  // to be allocated before the step
    std::int64_t drafts = 0;      // rows after these, for the first drafts
};

struct StepPlan {
    std::vector<std::size_t> preempt;  // running sequences that give their blocks back and wait again
    std::vector<PlannedRows> running;
    std::vector<PlannedRows> starting;   // of waiting, in its order, but first the one that is overdue
    std::vector<BlockHash> written;      // blocks that this step or a queued one completes; afterwards they are in the index
    bool lacks_blocks = false;           // a sequence waits for nothing but blocks, or is preempted
    std::optional<std::size_t> held_up;  // of waiting: the first whole text for which the others leave too few rows
    bool empty() const { return running.empty() && starting.empty(); }
    void clear();
};

// `waiting` is in the order in which sequences should start. The first ones that fit start, except those whose next block another sequence
// writes in this step or in a queued one: they take it from the index once that step was read, instead of computing it again. If no step is
// queued, a plan is empty only if nothing runs and the first waiting sequence does not fit into an empty pool. The vectors of `plan` keep
// their capacity between steps.
//
// Large jobs never take a whole step: while other sequences have rows to compute, those of large jobs together get at most half of the
// step's rows, even if the others need less, because a step with fewer rows ends sooner. Of the rows with logits they get half, or more if
// the others need less. While others wait, they start only within half of the places and blocks, and those that started before give the
// rest back, except the oldest one, which may need more than half of the blocks by itself.
//
// Drafts get rows, rows with logits and blocks that nothing else needs.
//
// A text that one step must compute may need more rows than running sequences ever leave. Once it is overdue, it gets its rows before them,
// and they go on in the next step.
void plan_step(std::span<const SequenceView> running, std::span<const SequenceView> waiting, std::int64_t blocks_available,
               const StepLimits& limits, StepPlan& plan);

}  // namespace lorry::engine
