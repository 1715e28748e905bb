// KV blocks by number: who holds which, and which hold the tokens of a known prefix (vLLM's automatic prefix caching, by chain hash).
// Knows no device and no requests; used by the engine's thread only.
// A block is free (nobody holds it, content meaningless), held (reference count > 0) or idle (nobody holds it, content indexed and
// kept until the space is needed, least recently released first). The last blocks may be lent, and are then in none of these states: low
// numbers are handed out first, and idle blocks with high numbers last once somebody wants to borrow.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/backend.h"

namespace lorry::engine {

using kernels::BlockId;
using kernels::TokenId;

// Names a block's content and all that stands before it: hash of (parent's hash, tokens); the first parent is the sequence's root.
struct BlockHash {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    bool operator==(const BlockHash&) const = default;
};

// The root of a sequence's chain: equal tokens give equal KV only under the same adapter and rope frequencies.
BlockHash root_hash(std::string_view adapter_hash, std::int64_t rope_tokens);
BlockHash chain_hash(const BlockHash& parent, std::span<const TokenId> tokens);

class BlockPool {
public:
    BlockPool(std::int64_t blocks, std::int64_t block_size);

    std::int64_t block_size() const { return block_size_; }
    std::int64_t total() const { return static_cast<std::int64_t>(blocks_.size()); }  // lent ones included
    // Blocks that allocate() can still give: free and idle ones.
    std::int64_t available() const { return static_cast<std::int64_t>(free_.size() + idle_.size() + idle_and_spare_.size()); }
    std::int64_t lent() const { return total() - end_; }
    std::int64_t held() const { return end_ - available(); }
    std::int64_t references(BlockId block) const { return at(block).references; }

    // A block with one reference and no content; available() must not be 0.
    BlockId allocate();
    // Lends the blocks from this one on and no others; what idle ones of them held is forgotten, held ones must not be among them.
    void lend_from(BlockId first);
    // The first block from which on nobody holds any.
    BlockId unheld_from() const;
    // From now on blocks from this one on are handed out when nothing else is left, whatever others know of prefixes.
    void spare_from(BlockId first);
    void share(BlockId block);
    // Gives up one reference. Release a sequence's blocks last to first, so that the ends of prefixes are dropped before their starts.
    void release(BlockId block);

    // Makes a held, completely written block findable: its tokens follow what `parent` names, and `hash` names both. If another block has
    // that content already, nothing happens.
    void index(BlockId block, const BlockHash& parent, const BlockHash& hash, std::span<const TokenId> tokens);
    // The block with that content; the tokens are compared. It is not held for the caller: share() it.
    std::optional<BlockId> find(const BlockHash& hash, std::span<const TokenId> tokens) const;

    // A block that begins as a sequence goes on, in so many tokens.
    struct Start {
        BlockId block = 0;
        std::int64_t tokens = 0;
    };
    // Of the blocks behind `parent`, the one that was indexed last, if it begins with any of these tokens. Not held for the caller.
    std::optional<Start> find_start(const BlockHash& parent, std::span<const TokenId> tokens) const;

    // CHECKs that counts, lists and index agree, and that references equal what the given tables hold.
    void check_integrity(std::span<const std::span<const BlockId>> tables) const;

private:
    struct HashOfHash {
        std::size_t operator()(const BlockHash& hash) const { return hash.low; }
    };
    struct Block {
        std::int64_t references = 0;
        std::optional<BlockHash> hash;      // set while indexed
        BlockHash parent;                   // of an indexed block
        std::vector<TokenId> tokens;        // of an indexed block
        std::list<BlockId>::iterator idle;  // position in idle_ while idle
    };

    Block& at(BlockId block) { return blocks_[static_cast<std::size_t>(block)]; }
    const Block& at(BlockId block) const { return blocks_[static_cast<std::size_t>(block)]; }

    void drop_content(Block& block, BlockId id);
    std::list<BlockId>& idle_of(BlockId block) { return block < spare_from_ ? idle_ : idle_and_spare_; }

    const std::int64_t block_size_;
    std::vector<Block> blocks_;
    std::int64_t end_;         // of the blocks that are not lent
    std::int64_t spare_from_;  // those before it go first
    std::set<BlockId> free_;
    std::list<BlockId> idle_;  // both: least recently released first
    std::list<BlockId> idle_and_spare_;
    std::unordered_map<BlockHash, BlockId, HashOfHash> index_;
    std::unordered_map<BlockHash, BlockId, HashOfHash> latest_;  // of the indexed blocks behind each parent, unless it is gone
};

}  // namespace lorry::engine
