// The running sequences, the KV blocks they hold and the adapters they pin. engine.cpp takes the scheduler's views from it, and uses it to
// carry out a plan. The engine's thread only.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/adapter_cache.h"
#include "engine/block_pool.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/shared_prefix.h"
#include "kernels/backend.h"

namespace lorry::engine {

class RunningSet {
public:
    // All of these outlive the set.
    RunningSet(kernels::Backend& backend, kernels::KvCache& cache, BlockPool& pool, AdapterCache& adapters)
        : backend_(backend), cache_(cache), pool_(pool), adapters_(adapters) {}

    std::span<Sequence* const> sequences() const { return sequences_; }
    std::size_t size() const { return sequences_.size(); }
    bool empty() const { return sequences_.empty(); }
    bool uses_adapter(std::string_view hash) const { return users_.contains(hash); }  // empty: the base

    // One view per sequence, in the order of sequences(), valid until a sequence changes. prefix_index: full blocks are added to the index.
    void view(bool prefix_index, std::vector<SequenceView>& views) const;

    // A plan is carried out in this order: preempt() for all victims, start() for all that start, then grow() and grow_started().

    // Removes the sequence and releases its blocks. It must not have rows in a queued step.
    void preempt(Sequence& sequence);
    // Adds the sequence: pins its adapter, which must be ready, and shares the prefix's blocks. The block that the prefix copies from is
    // held until grow_started().
    void start(Sequence& sequence, const SharedPrefix& prefix);
    // Allocates `blocks` more blocks.
    void grow(Sequence& sequence, std::int64_t blocks);
    // grow() for a sequence that was just started: also copies the start of a block if the prefix has one.
    void grow_started(Sequence& sequence, const SharedPrefix& prefix, std::int64_t blocks);

    // Removes a sequence, if it runs, and unpins its adapter. The sequence keeps its blocks.
    void remove(Sequence& sequence);
    // Releases all blocks of a running or waiting sequence, so that its tokens are computed again.
    void release_blocks(Sequence& sequence);
    // Shares the leader's blocks of the common tokens with `follower`, which waits. These tokens must be computed.
    void fork(const Sequence& leader, Sequence& follower);

private:
    kernels::Backend& backend_;
    kernels::KvCache& cache_;
    BlockPool& pool_;
    AdapterCache& adapters_;
    std::vector<Sequence*> sequences_;
    std::map<std::string, std::int64_t, std::less<>> users_;  // running sequences of each adapter
};

}  // namespace lorry::engine
