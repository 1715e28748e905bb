// Adapters on the device. The cache reads and packs them on its own thread while the batch runs, and evicts the least recently used one,
// never one that a running request uses. The engine's thread makes all calls.
//
// Each adapter has one slot in the KV cache's memory. The slot is either after the blocks, in bytes reserved for adapters, or over the last
// blocks, if the device can lend blocks and no sequence holds them. At most half of the unheld blocks are lent, and the engine takes back
// what sequences need, even from an adapter that was just loaded. Loading has three stages: reading, waiting for a slot (poll() assigns
// it), and packing into the slot.
//
// States: absent -> loading -> ready -> absent (evicted), or loading -> failed -> absent once it may be tried again (the pause doubles with
// each failure). After an error that may pass (a file that could not be read, a folder that is half copied), loading -> retrying -> absent;
// the last attempt leads to failed. Up to four adapters are read ahead while earlier ones are packed, so that the thread does not wait for
// the end of a step. An adapter that finds no slot because the others are in use stays loading, and so do those after it. A loaded adapter
// that was not pinned yet is kept for a while: otherwise two adapters that do not fit together would evict each other before their requests
// run.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/block_pool.h"
#include "engine/model/adapter.h"
#include "engine/text/model_text.h"

namespace lorry::engine {

// Where an adapter's files are; the hash of their content identifies the adapter.
struct AdapterSource {
    std::string hash;
    std::filesystem::path folder;
    // As AdapterInfo's: the tokens of its requests are within it. A request that has another one than the files fails.
    std::optional<std::int64_t> vocabulary = {};
};

class AdapterCache {
public:
    enum class State : std::uint8_t { absent, loading, retrying, ready, failed };

    struct Stats {
        std::size_t resident = 0;  // adapters
        std::size_t resident_bytes = 0;
        std::size_t budget_bytes = 0;  // reserved for adapters, without lent blocks
        std::uint64_t loads = 0;
        std::uint64_t evictions = 0;
        std::uint64_t failures = 0;
    };

    struct Options {
        int attempts_max = 5;                         // to read an adapter, before it fails
        std::chrono::milliseconds reread_after{250};  // pause after the first attempt; doubles up to retry_after_max
        std::chrono::milliseconds retry_after{1000};  // pause after a first failure; doubles up to retry_after_max
        std::chrono::milliseconds retry_after_max{60000};
        std::chrono::milliseconds unpinned_grace{10000};  // how long a loaded adapter is kept for its first pin
        const ModelTexts* texts = nullptr;                // as EngineOptions::texts
    };

    // Slots are in the memory of `memory`, whose blocks `blocks` counts. All of these outlive the cache.
    AdapterCache(const Model& model, kernels::Backend& backend, kernels::KvCache& memory, BlockPool& blocks, const Options& options);
    ~AdapterCache();
    AdapterCache(const AdapterCache&) = delete;
    AdapterCache& operator=(const AdapterCache&) = delete;

    // Takes over adapters that the loading thread finished, assigns slots to those it has read, and starts queued loads. Never blocks.
    // may_borrow: blocks may be lent for slots.
    void poll(bool may_borrow = false);
    // Requests an adapter: it is loaded if it is absent and the queue has room. If the queue is full, the caller asks again. Never blocks.
    void prefetch(const AdapterSource& source);
    State state(std::string_view hash) const;
    // The adapter that was read but finds no slot until adapters in use are released; nullopt: none. Valid until the next call.
    std::optional<std::string_view> needs_room() const;
    // Drops that adapter, because no request wants it any more.
    void give_up_room();
    // Why loading failed; empty unless state is failed.
    std::string failure(std::string_view hash) const;
    // The ready adapter, kept until unpin; nullptr unless state is ready. Pins count.
    const Adapter* pin(std::string_view hash);
    void unpin(std::string_view hash);
    // How many blocks take_back() can return: the lent ones before the first slot of an adapter that is pinned or being packed.
    std::int64_t blocks_to_take_back() const;
    // The lent blocks before this adapter's slot, which can be taken back without evicting it; all lent blocks if its slot is elsewhere.
    std::int64_t lent_blocks_before(std::string_view hash) const;
    // Returns at least this many lent blocks to the pool by evicting unused adapters; fewer if blocks_to_take_back() is less.
    void take_back(std::int64_t blocks);
    // Returns all blocks that can be taken back, for a request of this adapter. The adapter borrows no blocks until it was pinned.
    void take_back_for(const std::string& hash);
    // Waits until a load finishes or the timeout passes, for an engine that has nothing else to do. Call poll() afterwards.
    void wait(std::chrono::milliseconds timeout);
    Stats stats() const;

private:
    struct Implementation;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace lorry::engine
