// Shares, allocates, copies and releases the blocks of running sequences.
#include "engine/running_set.h"

#include <algorithm>
#include <utility>

#include "schema/check.h"

namespace lorry::engine {

void RunningSet::view(bool prefix_index, std::vector<SequenceView>& views) const {
    views.clear();
    for (const Sequence* sequence : sequences_) {
        SequenceView& view = views.emplace_back(sequence->view());
        view.blocks_sole = std::ranges::count_if(sequence->blocks, [&](BlockId block) { return pool_.references(block) == 1; });
        if (!prefix_index) continue;
        view.blocks_ahead = sequence->blocks_between(view.computed, view.known, pool_.block_size());
        view.blocks_queued = sequence->blocks_between(sequence->computed, view.computed, pool_.block_size());
    }
}

void RunningSet::preempt(Sequence& sequence) {
    CHECK(sequence.queued.rows == 0, "queued steps are read before a sequence is preempted");
    remove(sequence);
    release_blocks(sequence);
}

void RunningSet::start(Sequence& sequence, const SharedPrefix& prefix) {
    if (sequence.blocks.empty()) {
        sequence.blocks = prefix.blocks;
        for (const BlockId block : prefix.blocks) pool_.share(block);
        if (prefix.start) pool_.share(prefix.start->block);
        sequence.computed = prefix.tokens(pool_.block_size());
        sequence.indexed = std::ssize(prefix.blocks);
    }
    if (sequence.request().adapter) {
        sequence.adapter = adapters_.pin(sequence.adapter_hash());
        CHECK(sequence.adapter != nullptr, "only sequences whose adapter is ready are started");
        if (sequence.adapter->info().vocabulary != sequence.request().adapter->vocabulary)
            sequence.result.error =
                schema::JobError{.code = schema::ErrorCode::adapter_failed,
                                 .param = "model",
                                 .message = "the adapter has another number of tokens than it was registered with; register it again"};
    }
    ++users_[sequence.adapter_hash()];
    sequence.running = true;
    sequences_.push_back(&sequence);
}

void RunningSet::grow(Sequence& sequence, std::int64_t blocks) {
    if (blocks > pool_.available()) adapters_.take_back(blocks - pool_.available());
    for (std::int64_t i = 0; i < blocks; ++i) sequence.blocks.push_back(pool_.allocate());
}

void RunningSet::grow_started(Sequence& sequence, const SharedPrefix& prefix, std::int64_t blocks) {
    grow(sequence, blocks);
    if (!prefix.start) return;
    backend_.copy_block(cache_, prefix.start->block, sequence.blocks[prefix.blocks.size()]);
    pool_.release(prefix.start->block);
}

void RunningSet::remove(Sequence& sequence) {
    if (!std::exchange(sequence.running, false)) return;
    std::erase(sequences_, &sequence);
    const auto users = users_.find(sequence.adapter_hash());
    if (--users->second == 0) users_.erase(users);
    if (std::exchange(sequence.adapter, nullptr) != nullptr) adapters_.unpin(sequence.adapter_hash());
}

void RunningSet::release_blocks(Sequence& sequence) {
    while (!sequence.blocks.empty()) {
        pool_.release(sequence.blocks.back());
        sequence.blocks.pop_back();
    }
    sequence.computed = 0;
    sequence.indexed = 0;
}

void RunningSet::fork(const Sequence& leader, Sequence& follower) {
    const std::int64_t tokens = follower.request().fork->tokens;
    const std::int64_t full = tokens / pool_.block_size();
    for (std::int64_t i = 0; i < full; ++i) {
        follower.blocks.push_back(leader.blocks[static_cast<std::size_t>(i)]);
        pool_.share(follower.blocks.back());
    }
    follower.indexed = full;
    follower.computed = full * pool_.block_size();
    // The start of the last block is copied if each running sequence still has a block to grow into; otherwise it is computed again.
    if (follower.computed == tokens || pool_.available() <= std::ssize(sequences_)) return;
    grow(follower, 1);
    backend_.copy_block(cache_, leader.blocks[static_cast<std::size_t>(full)], follower.blocks.back());
    follower.computed = tokens;
}

}  // namespace lorry::engine
