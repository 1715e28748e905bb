// KV blocks by number: reference counts, and an index of blocks by the prefix whose tokens they hold (vLLM's automatic prefix caching with
// chain hashes). Knows no device and no requests. Used by the engine's thread only.
//
// A block is free (not held, content meaningless), held (reference count > 0) or idle (not held, content indexed). Idle blocks are reused
// when space is needed, the least recently released first. The last blocks may be lent to adapters; a lent block is in none of these
// states. Low numbers are handed out first; once an adapter wants to borrow blocks, idle blocks with high numbers are reused last.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/device_objects.h"

namespace lorry::engine {

using kernels::BlockId;
using kernels::TokenId;

// Names a block's content and all tokens before it: the hash of (parent's hash, tokens). The first parent is the sequence's root.
struct BlockHash {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    bool operator==(const BlockHash&) const = default;
};

// The root of a sequence's chain. Equal tokens have equal KV entries only with the same adapter and the same rope frequencies, and are
// shared only within a scope (Request::prefix_scope).
BlockHash root_hash(std::string_view adapter_hash, const BlockHash& scope, std::int64_t rope_tokens);
BlockHash chain_hash(const BlockHash& parent, std::span<const TokenId> tokens);

class BlockPool {
public:
    BlockPool(std::int64_t blocks, std::int64_t block_size);

    std::int64_t block_size() const { return block_size_; }
    std::int64_t total() const { return static_cast<std::int64_t>(blocks_.size()); }  // lent ones included
    // Blocks that allocate() can return: free and idle ones.
    std::int64_t available() const { return static_cast<std::int64_t>(free_.size() + idle_.size() + idle_and_spare_.size()); }
    std::int64_t lent() const { return total() - end_; }
    std::int64_t held() const { return end_ - available(); }
    std::int64_t references(BlockId block) const { return at(block).references; }

    // A block with one reference and no content; available() must not be 0.
    BlockId allocate();
    // Lends exactly the blocks from `first` on. None of them may be held; the content of idle ones is dropped.
    void lend_from(BlockId first);
    // The lowest block such that no block from it on is held.
    BlockId unheld_from() const;
    // From now on, blocks from `first` on are handed out only if no other block is free or idle.
    void spare_from(BlockId first);
    // Adds a reference to a held or idle block.
    void share(BlockId block);
    // Gives up one reference. Release a sequence's blocks last to first, so that the ends of prefixes are dropped before their starts.
    void release(BlockId block);

    // Adds a held, completely written block to the index: its tokens follow what `parent` names, and `hash` names both. Does nothing if
    // another block with that content is indexed.
    void index(BlockId block, const BlockHash& parent, const BlockHash& hash, std::span<const TokenId> tokens);
    // The block with that content; the tokens are compared, too. It is not held for the caller: share() it.
    std::optional<BlockId> find(const BlockHash& hash, std::span<const TokenId> tokens) const;

    // A block whose first `tokens` tokens are those that a sequence continues with.
    struct Start {
        BlockId block = 0;
        std::int64_t tokens = 0;
    };
    // The block after `parent` that was indexed last, if its first token is tokens[0]. It is not held for the caller.
    std::optional<Start> find_start(const BlockHash& parent, std::span<const TokenId> tokens) const;

    // CHECKs that counts, lists and index agree, and that the given block tables account for all references.
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
    std::int64_t end_;         // blocks from here on are lent
    std::int64_t spare_from_;  // blocks from here on are handed out last
    std::set<BlockId> free_;
    std::list<BlockId> idle_;  // both: least recently released first
    std::list<BlockId> idle_and_spare_;
    std::unordered_map<BlockHash, BlockId, HashOfHash> index_;
    std::unordered_map<BlockHash, BlockId, HashOfHash> latest_;  // by parent: the block that was indexed last, while its content is kept
};

}  // namespace lorry::engine
