// Adapters on the device: read and packed on a thread of the cache's own while the batch runs, evicted least recently used, never while a
// running request uses them. All calls from the engine's thread.
//
// An adapter has one slot of the KV cache's memory: behind the blocks, in bytes that are the adapters' own, or over the last blocks, where
// these can be lent and nobody holds them. At most half of the blocks that nobody holds are lent, and the engine takes back what sequences
// need, be it from an adapter that was just loaded. So an adapter waits for reading it, for a slot, which it is given at a poll(), and for
// being packed there.
//
// absent -> loading -> ready -> absent (evicted), or loading -> failed -> absent once it may be tried again (the pause doubles with each
// failure). What may pass (a file that could not be read, a folder that is half copied) is tried again first: loading -> retrying ->
// absent, and fails at the last attempt. Up to four adapters are read at a time, and those before them packed, so that the thread need not
// wait for a step's end to go on. One that finds no slot as the others are in use stays loading, and so do those behind it. What was loaded
// but not yet pinned is kept for a while: else two that do not fit together would evict each other before their requests run.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/adapter.h"
#include "engine/block_pool.h"

namespace lorry::engine {

// Where an adapter's content lies; the hash identifies it.
struct AdapterSource {
    std::string hash;
    std::filesystem::path folder;
};

class AdapterCache {
public:
    enum class State : std::uint8_t { absent, loading, retrying, ready, failed };

    struct Stats {
        std::size_t resident = 0;  // adapters
        std::size_t resident_bytes = 0;
        std::size_t budget_bytes = 0;  // of their own
        std::uint64_t loads = 0;
        std::uint64_t evictions = 0;
        std::uint64_t failures = 0;
    };

    struct Options {
        int attempts_max = 5;                         // to read an adapter, before it fails
        std::chrono::milliseconds reread_after{250};  // after the first of them; doubles as well
        std::chrono::milliseconds retry_after{1000};  // after a first failure; doubles up to retry_after_max
        std::chrono::milliseconds retry_after_max{60000};
        std::chrono::milliseconds unpinned_grace{10000};  // how long a loaded adapter waits for its first pin before it may be evicted
    };

    // The memory is that of `memory`, whose blocks `blocks` counts. All of these outlive the cache.
    AdapterCache(const Model& model, kernels::Backend& backend, kernels::KvCache& memory, BlockPool& blocks, const Options& options);
    ~AdapterCache();
    AdapterCache(const AdapterCache&) = delete;
    AdapterCache& operator=(const AdapterCache&) = delete;

    // Takes over what the loading thread finished, gives slots to what it read and starts queued loads. Never blocks. may_borrow: blocks
    // may be lent for them.
    void poll(bool may_borrow = false);
    // Asks for an adapter; it is loaded if it is absent and the queue has room, else the caller asks again. Never blocks.
    void prefetch(const AdapterSource& source);
    State state(std::string_view hash) const;
    // The adapter that is read but to which those in use leave no room, if there is one: it needs them to end. Valid until the next call.
    std::optional<std::string_view> needs_room() const;
    // Drops that one: nobody wants it any more.
    void give_up_room();
    // Why loading failed; empty unless state is failed.
    std::string failure(std::string_view hash) const;
    // The ready adapter, kept until unpin; nullptr unless state is ready. Pins count.
    const Adapter* pin(std::string_view hash);
    void unpin(std::string_view hash);
    // Blocks that take_back() can get: the lent ones before the first slot of an adapter that is pinned or being packed.
    std::int64_t blocks_to_take_back() const;
    // Those before this adapter's slot, which can be got without it; all lent ones where it lies elsewhere.
    std::int64_t lent_blocks_before(std::string_view hash) const;
    // Has the pool have so many of the lent blocks again, at least; adapters that nobody uses go for it. No more than can be got.
    void take_back(std::int64_t blocks);
    // All that can be got, for a request of this adapter, to which no blocks are lent any more before it was pinned.
    void take_back_for(const std::string& hash);
    // Waits until a load finishes or the timeout passes: for an engine that has nothing else to do. Call poll() after it.
    void wait(std::chrono::milliseconds timeout);
    Stats stats() const;

private:
    struct Implementation;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace lorry::engine
