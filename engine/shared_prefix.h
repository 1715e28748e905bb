// Takes prefixes of waiting sequences from the prefix index, and adds blocks of running sequences to it. Used by engine.cpp and
// running_set.cpp.
#pragma once

#include <optional>
#include <vector>

#include "engine/block_pool.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace lorry::engine {

// What the prefix index has for the start of a sequence. Valid until a block is allocated.
struct SharedPrefix {
    std::vector<BlockId> blocks;            // full blocks, to be shared
    std::optional<BlockPool::Start> start;  // a block that begins like the next one, to be copied

    std::int64_t tokens(std::int64_t block_size) const { return std::ssize(blocks) * block_size + (start ? start->tokens : 0); }
};

// The scheduler's view of a waiting sequence, and in `prefix` the blocks that the view counts on. A sequence that already holds blocks (a
// fork) shares no others.
SequenceView view_waiting(const Sequence& sequence, const BlockPool& pool, bool prefix_cache, SharedPrefix& prefix);

// Adds the sequence's full blocks to the index. Call it after `computed` has grown.
void index_full_blocks(Sequence& sequence, BlockPool& pool);

}  // namespace lorry::engine
