// Looks up prefixes in the block pool's index, and adds blocks to it.
#include "engine/shared_prefix.h"

#include <algorithm>

namespace lorry::engine {
namespace {

// Computing less than this part of a block is faster than copying the block.
constexpr std::int64_t copied_share_least = 8;

// Names all tokens before a block of the sequence.
const BlockHash& parent_of(const Sequence& sequence, std::int64_t block, std::int64_t block_size) {
    return block == 0 ? sequence.root() : sequence.chain(block, block_size).back();
}

SharedPrefix find_prefix(const Sequence& sequence, const BlockPool& pool) {
    SharedPrefix prefix;
    auto left = std::span<const TokenId>(sequence.tokens).first(static_cast<std::size_t>(sequence.reusable_tokens()));
    const auto size = static_cast<std::size_t>(pool.block_size());
    for (const BlockHash& hash : sequence.chain(std::ssize(left) / pool.block_size(), pool.block_size())) {
        const auto block = pool.find(hash, left.first(size));
        if (!block) break;
        prefix.blocks.push_back(*block);
        left = left.subspan(size);
    }
    const BlockHash& parent = parent_of(sequence, std::ssize(prefix.blocks), pool.block_size());
    prefix.start = pool.find_start(parent, left.first(std::min(left.size(), size)));
    if (prefix.start && prefix.start->tokens * copied_share_least < pool.block_size()) prefix.start.reset();
    return prefix;
}

}  // namespace

SequenceView view_waiting(const Sequence& sequence, const BlockPool& pool, bool prefix_cache, SharedPrefix& prefix) {
    SequenceView view = sequence.view();
    if (!sequence.blocks.empty() || !prefix_cache) return view;
    prefix = find_prefix(sequence, pool);
    const auto is_idle = [&](BlockId block) { return pool.references(block) == 0; };
    view.blocks = std::ssize(prefix.blocks);
    view.blocks_idle = std::ranges::count_if(prefix.blocks, is_idle);
    if (prefix.start && is_idle(prefix.start->block)) {
        // The block is held while it is copied, so that starting takes one block more than the sequence does. If the pool can never have
        // that block available, the sequence would wait forever.
        const std::int64_t needed = (view.known + pool.block_size() - 1) / pool.block_size() - view.blocks + view.blocks_idle;
        if (needed < pool.available()) {
            ++view.blocks_idle;
        } else {
            prefix.start.reset();
        }
    }
    view.computed = prefix.tokens(pool.block_size());
    view.blocks_ahead = sequence.blocks_between(view.computed, view.known, pool.block_size());
    view.next_is_reusable = sequence.reusable_tokens() >= (view.blocks + 1) * pool.block_size();
    return view;
}

void index_full_blocks(Sequence& sequence, BlockPool& pool) {
    const std::int64_t full = sequence.computed / pool.block_size();
    const auto size = static_cast<std::size_t>(pool.block_size());
    const auto chain = sequence.chain(full, pool.block_size());
    for (; sequence.indexed < full; ++sequence.indexed) {
        const auto i = static_cast<std::size_t>(sequence.indexed);
        pool.index(sequence.blocks[i], parent_of(sequence, sequence.indexed, pool.block_size()), chain[i],
                   std::span(sequence.tokens).subspan(i * size, size));
    }
}

}  // namespace lorry::engine
