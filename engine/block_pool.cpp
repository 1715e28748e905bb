// Reference counts, free and idle lists, and the prefix index of KV blocks.
#include "engine/block_pool.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "schema/check.h"

namespace lorry::engine {
namespace {

constexpr std::size_t block_size_max = 256;  // tokens

}  // namespace

BlockHash root_hash(std::string_view adapter_hash, const BlockHash& scope, std::int64_t rope_tokens) {
    const XXH128_hash_t adapter = XXH3_128bits(adapter_hash.data(), adapter_hash.size());
    const std::array<std::uint64_t, 4> names = {scope.low, scope.high, adapter.low64, adapter.high64};
    const XXH128_hash_t hash = XXH3_128bits_withSeed(names.data(), sizeof names, static_cast<XXH64_hash_t>(rope_tokens));
    return {hash.low64, hash.high64};
}

BlockHash chain_hash(const BlockHash& parent, std::span<const TokenId> tokens) {
    struct {
        BlockHash parent;
        std::array<TokenId, block_size_max> tokens;
    } text;
    CHECK(tokens.size() <= text.tokens.size(), "no backend has larger blocks");
    text.parent = parent;
    std::ranges::copy(tokens, text.tokens.begin());
    const XXH128_hash_t hash = XXH3_128bits(&text, sizeof text.parent + tokens.size_bytes());
    return {hash.low64, hash.high64};
}

BlockPool::BlockPool(std::int64_t blocks, std::int64_t block_size)
    : block_size_(block_size), blocks_(static_cast<std::size_t>(blocks)), end_(blocks), spare_from_(blocks) {
    CHECK(blocks > 0 && block_size > 0, "a pool has blocks");
    for (BlockId id = 0; id < end_; ++id) free_.insert(free_.end(), id);
}

BlockId BlockPool::allocate() {
    CHECK(available() > 0, "the scheduler plans no more blocks than are available");
    const bool has_free = !free_.empty() && (*free_.begin() < spare_from_ || idle_.empty());
    BlockId block = 0;
    if (has_free) {
        block = *free_.begin();
        free_.erase(free_.begin());
    } else {
        std::list<BlockId>& idle = idle_.empty() ? idle_and_spare_ : idle_;
        block = idle.front();
        idle.pop_front();
        drop_content(at(block), block);
    }
    at(block).references = 1;
    return block;
}

void BlockPool::spare_from(BlockId first) {
    if (std::exchange(spare_from_, first) == first) return;
    std::list<BlockId> all;
    all.swap(idle_);
    all.splice(all.end(), idle_and_spare_);
    while (!all.empty()) {
        std::list<BlockId>& idle = idle_of(all.front());
        idle.splice(idle.end(), all, all.begin());
    }
}

void BlockPool::drop_content(Block& block, BlockId id) {
    index_.erase(*block.hash);
    block.hash.reset();
    const auto latest = latest_.find(block.parent);
    if (latest != latest_.end() && latest->second == id) latest_.erase(latest);
}

void BlockPool::lend_from(BlockId first) {
    CHECK(first >= 0 && first <= total(), "blocks of the pool are lent");
    for (; end_ > first; --end_) {
        const auto id = static_cast<BlockId>(end_ - 1);
        Block& block = at(id);
        CHECK(block.references == 0, "a block that is held is not lent");
        if (block.hash) {
            idle_of(id).erase(block.idle);
            drop_content(block, id);
        } else {
            free_.erase(id);
        }
    }
    for (; end_ < first; ++end_) free_.insert(free_.end(), static_cast<BlockId>(end_));
}

BlockId BlockPool::unheld_from() const {
    std::int64_t first = end_;
    while (first > 0 && blocks_[static_cast<std::size_t>(first - 1)].references == 0) --first;
    return static_cast<BlockId>(first);
}

void BlockPool::share(BlockId block) {
    Block& shared = at(block);
    if (shared.references == 0) {
        CHECK(shared.hash.has_value(), "a free block has no content to share");
        idle_of(block).erase(shared.idle);
    }
    ++shared.references;
}

void BlockPool::release(BlockId block) {
    Block& released = at(block);
    CHECK(released.references > 0, "released more often than held");
    if (--released.references > 0) return;
    if (released.hash) {
        std::list<BlockId>& idle = idle_of(block);
        released.idle = idle.insert(idle.end(), block);
    } else {
        free_.insert(block);
    }
}

void BlockPool::index(BlockId block, const BlockHash& parent, const BlockHash& hash, std::span<const TokenId> tokens) {
    Block& indexed = at(block);
    CHECK(indexed.references > 0, "only a held block is indexed");
    CHECK(static_cast<std::int64_t>(tokens.size()) == block_size_, "only full blocks are indexed");
    if (indexed.hash || !index_.emplace(hash, block).second) return;
    indexed.hash = hash;
    indexed.parent = parent;
    indexed.tokens.assign(tokens.begin(), tokens.end());
    latest_[parent] = block;
}

std::optional<BlockId> BlockPool::find(const BlockHash& hash, std::span<const TokenId> tokens) const {
    const auto found = index_.find(hash);
    if (found == index_.end()) return std::nullopt;
    return std::ranges::equal(at(found->second).tokens, tokens) ? std::optional(found->second) : std::nullopt;
}

std::optional<BlockPool::Start> BlockPool::find_start(const BlockHash& parent, std::span<const TokenId> tokens) const {
    const auto latest = latest_.find(parent);
    if (latest == latest_.end()) return std::nullopt;
    const auto equal = std::ranges::mismatch(at(latest->second).tokens, tokens).in2 - tokens.begin();
    return equal > 0 ? std::optional(Start{latest->second, equal}) : std::nullopt;
}

void BlockPool::check_integrity(std::span<const std::span<const BlockId>> tables) const {
    std::vector<std::int64_t> held(blocks_.size(), 0);
    for (const auto table : tables) {
        for (const BlockId block : table) ++held[static_cast<std::size_t>(block)];
    }
    std::size_t idle = 0;
    std::size_t free = 0;
    std::size_t indexed = 0;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        const Block& block = blocks_[i];
        CHECK(block.references == held[i], "a block is held as often as tables name it");
        if (static_cast<std::int64_t>(i) >= end_) {
            CHECK(block.references == 0 && !block.hash, "a lent block is not held and not indexed");
            continue;
        }
        if (block.references == 0) ++(block.hash ? idle : free);
        if (!block.hash) continue;
        ++indexed;
        const auto found = index_.find(*block.hash);
        CHECK(found != index_.end() && found->second == static_cast<BlockId>(i), "an indexed block is found by its hash");
    }
    CHECK(idle == idle_.size() + idle_and_spare_.size() && free == free_.size(), "every unheld block is in exactly one list");
    CHECK(indexed == index_.size(), "the index names only indexed blocks");
    for (const auto& [parent, block] : latest_) {
        CHECK(at(block).hash && at(block).parent == parent, "the latest block after another is indexed");
    }
    for (const auto* const list : {&idle_, &idle_and_spare_}) {
        for (const BlockId block : *list) {
            CHECK(at(block).references == 0 && at(block).hash, "idle blocks are unheld and indexed");
            CHECK((list == &idle_) == (block < spare_from_), "spare blocks are in their own list");
        }
    }
    for (const BlockId block : free_) CHECK(at(block).references == 0 && !at(block).hash, "free blocks are unheld and not indexed");
    CHECK(free_.empty() || *free_.rbegin() < end_, "free blocks are not lent");
}

}  // namespace lorry::engine
