// The sequences that run: which they are, the KV blocks they hold and the adapters they pin. engine.cpp asks it for the scheduler's views,
// and has it carry out what a plan decides. The engine's thread only.
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
    bool uses_adapter(std::string_view hash) const { return users_.contains(hash); }  // "": the base

    // One view per sequence, in the order of sequences(); valid until one of them changes. prefix_index: its blocks will be indexed.
    void view(bool prefix_index, std::vector<SequenceView>& views) const;

    // Call in this order when a plan is carried out: victims give their blocks back, prefixes are held before an allocation can drop
    // them, then all that run get their blocks.
    // preempt: the sequence leaves without its blocks; none of its rows may be in a queued step.
    void preempt(Sequence& sequence);
    // Pins the sequence's adapter, which must be ready, and takes the prefix's blocks. The block that it copies from is held until
    // grow_started().
    void start(Sequence& sequence, const SharedPrefix& prefix);
    void grow(Sequence& sequence, std::int64_t blocks);
    // grow() for a sequence that was just started: also copies the part of a block that its prefix ends with.
    void grow_started(Sequence& sequence, const SharedPrefix& prefix, std::int64_t blocks);

    // Takes a sequence out, if it runs, and gives its adapter back. It keeps its blocks.
    void remove(Sequence& sequence);
    // Of any sequence, running or waiting: gives all its blocks back, so that it starts anew.
    void release_blocks(Sequence& sequence);
    // Gives `follower`, which waits, the leader's blocks of the tokens that the two share. These must be computed.
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
