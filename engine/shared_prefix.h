// What waiting sequences take from the prefix index, and what running ones put into it. Used by engine.cpp and running_set.cpp.
#pragma once

#include <optional>
#include <vector>

#include "engine/block_pool.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace lorry::engine {

// What the prefix index has for the start of a sequence; good until a block is allocated.
struct SharedPrefix {
    std::vector<BlockId> blocks;            // full ones, which it shares
    std::optional<BlockPool::Start> start;  // of the next one, which it copies

    std::int64_t tokens(std::int64_t block_size) const { return std::ssize(blocks) * block_size + (start ? start->tokens : 0); }
};

// How the scheduler sees a waiting sequence, and in `prefix` the blocks that are the reason. A sequence that brings blocks (a fork) shares
// no others.
SequenceView view_waiting(const Sequence& sequence, const BlockPool& pool, bool prefix_cache, SharedPrefix& prefix);

// After `computed` has grown.
void index_full_blocks(Sequence& sequence, BlockPool& pool);

}  // namespace lorry::engine
