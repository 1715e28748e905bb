// The block pool's reference counts, lending, and prefix index.
#include "engine/block_pool.h"

#include <gtest/gtest.h>

#include <random>

namespace lorry::engine {
namespace {

std::vector<TokenId> tokens_of(std::int32_t first) { return {first, first + 1, first + 2, first + 3}; }

TEST(BlockPool, KeepsAReleasedIndexedBlockUntilItsSpaceIsNeeded) {
    BlockPool pool(2, 4);
    const BlockHash hash = chain_hash(root_hash("", {}, 0), tokens_of(1));
    const BlockId block = pool.allocate();
    pool.index(block, root_hash("", {}, 0), hash, tokens_of(1));
    pool.release(block);
    EXPECT_EQ(pool.available(), 2);
    EXPECT_EQ(pool.find(hash, tokens_of(1)), block);

    pool.allocate();
    EXPECT_EQ(pool.find(hash, tokens_of(1)), block) << "the free block goes first";
    pool.allocate();
    EXPECT_EQ(pool.find(hash, tokens_of(1)), std::nullopt) << "no other block was left";
}

TEST(BlockPool, DropsTheEndOfAReleasedPrefixBeforeItsStart) {
    BlockPool pool(2, 4);
    const BlockHash first = chain_hash(root_hash("", {}, 0), tokens_of(1));
    const BlockHash second = chain_hash(first, tokens_of(5));
    const std::vector<BlockId> table{pool.allocate(), pool.allocate()};
    pool.index(table[0], root_hash("", {}, 0), first, tokens_of(1));
    pool.index(table[1], first, second, tokens_of(5));
    pool.release(table[1]);
    pool.release(table[0]);
    pool.allocate();
    EXPECT_TRUE(pool.find(first, tokens_of(1)));
    EXPECT_FALSE(pool.find(second, tokens_of(5)));
}

TEST(BlockPool, LendsItsLastBlocksAndForgetsWhatIdleOnesHeld) {
    BlockPool pool(4, 4);
    const BlockHash root = root_hash("", {}, 0);
    const std::vector<BlockId> table{pool.allocate(), pool.allocate(), pool.allocate()};
    EXPECT_EQ(table, (std::vector<BlockId>{0, 1, 2})) << "low numbers first";
    const BlockHash hash = chain_hash(root, tokens_of(1));
    pool.index(table[2], root, hash, tokens_of(1));
    EXPECT_EQ(pool.unheld_from(), 3);
    pool.release(table[2]);
    pool.release(table[0]);
    EXPECT_EQ(pool.unheld_from(), 2);
    pool.lend_from(2);
    EXPECT_EQ(pool.lent(), 2);
    EXPECT_EQ(pool.available(), 1);
    EXPECT_EQ(pool.held(), 1);
    EXPECT_EQ(pool.find(hash, tokens_of(1)), std::nullopt);
    EXPECT_EQ(pool.find_start(root, tokens_of(1)), std::nullopt);
    pool.check_integrity(std::vector<std::span<const BlockId>>{std::span(table).subspan(1, 1)});

    pool.lend_from(3);
    EXPECT_EQ(pool.available(), 2);
    EXPECT_EQ(pool.allocate(), 0);
    EXPECT_EQ(pool.allocate(), 2) << "the pool has it again";
    pool.lend_from(4);
    EXPECT_EQ(pool.lent(), 0);
    EXPECT_EQ(pool.total(), 4);
}

TEST(BlockPool, HandsOutSpareBlocksWhenNothingElseIsLeft) {
    BlockPool pool(4, 4);
    const BlockHash root = root_hash("", {}, 0);
    std::vector<BlockId> held;
    for (std::int32_t i = 0; i < 3; ++i) {
        held.push_back(pool.allocate());
        pool.index(held.back(), root, chain_hash(root, tokens_of(10 * i)), tokens_of(10 * i));
    }
    for (const BlockId block : {2, 0, 1}) pool.release(block);  // block 3 is free; block 2 became idle first
    pool.spare_from(2);
    pool.check_integrity({});
    EXPECT_EQ(pool.allocate(), 0);
    EXPECT_EQ(pool.allocate(), 1);
    EXPECT_EQ(pool.allocate(), 3) << "free blocks before idle ones";
    EXPECT_EQ(pool.unheld_from(), 4);
    EXPECT_EQ(pool.find(chain_hash(root, tokens_of(20)), tokens_of(20)), 2);
    EXPECT_EQ(pool.allocate(), 2);
    held.push_back(3);
    pool.check_integrity(std::vector<std::span<const BlockId>>{held});
}

TEST(BlockPool, ComparesTokensSoThatACollidingHashIsNoHit) {
    BlockPool pool(1, 4);
    const BlockHash hash{.low = 1, .high = 2};
    pool.index(pool.allocate(), root_hash("", {}, 0), hash, tokens_of(1));
    EXPECT_TRUE(pool.find(hash, tokens_of(1)));
    EXPECT_FALSE(pool.find(hash, tokens_of(2)));
}

TEST(BlockPool, FindsTheLatestBlockThatBeginsAsASequenceGoesOn) {
    BlockPool pool(2, 4);
    const BlockHash root = root_hash("", {}, 0);
    const auto add = [&](const std::vector<TokenId>& tokens) {
        const BlockId block = pool.allocate();
        pool.index(block, root, chain_hash(root, tokens), tokens);
        pool.release(block);
        return block;
    };
    const auto start = [&](const std::vector<TokenId>& tokens) {
        const auto found = pool.find_start(root, tokens);
        return found ? std::pair(found->block, found->tokens) : std::pair(BlockId{-1}, std::int64_t{0});
    };
    const auto none = std::pair(BlockId{-1}, std::int64_t{0});
    EXPECT_EQ(start({1, 2, 3, 4}), none);
    const BlockId first = add({1, 2, 3, 4});
    EXPECT_EQ(start({1, 2, 3, 9}), std::pair(first, std::int64_t{3}));
    EXPECT_EQ(start({1, 2}), std::pair(first, std::int64_t{2})) << "at most the tokens of the query";
    EXPECT_EQ(start({9, 2, 3, 4}), none);
    EXPECT_EQ(start({}), none);
    EXPECT_FALSE(pool.find_start(root_hash("another", {}, 0), tokens_of(1)));
    const BlockId second = add({1, 5, 6, 7});
    EXPECT_EQ(start({1, 2, 3, 4}), std::pair(second, std::int64_t{1}));
    pool.allocate();  // reuses the block that was released first
    EXPECT_EQ(start({1, 5, 6, 9}), std::pair(second, std::int64_t{3}));
    pool.allocate();
    EXPECT_EQ(start({1, 5, 6, 9}), none);
    pool.check_integrity(std::vector<std::span<const BlockId>>{std::vector<BlockId>{first}, std::vector<BlockId>{second}});
}

TEST(BlockPool, NamesContentByAdapterScopeAndRopeLengthToo) {
    const BlockHash scope{.low = 1, .high = 2};
    EXPECT_NE(root_hash("a", scope, 0), root_hash("b", scope, 0));
    EXPECT_NE(root_hash("a", scope, 0), root_hash("a", {.low = 1, .high = 3}, 0));
    EXPECT_NE(root_hash("a", scope, 0), root_hash("a", {.low = 3, .high = 2}, 0));
    EXPECT_NE(root_hash("a", scope, 0), root_hash("a", scope, 100));
    EXPECT_NE(chain_hash(root_hash("a", scope, 0), tokens_of(1)), chain_hash(root_hash("b", scope, 0), tokens_of(1)));
}

TEST(BlockPool, StaysIntactUnderRandomUse) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    BlockPool pool(17, 4);
    std::vector<std::vector<BlockId>> tables(6);
    for (int round = 0; round < 20'000; ++round) {
        auto& table = tables[random() % tables.size()];
        const auto content = static_cast<std::int32_t>(random() % 12);
        const BlockHash hash = chain_hash(root_hash("", {}, 0), tokens_of(content));
        switch (random() % 4) {
            case 0:
                if (pool.available() > 0) table.push_back(pool.allocate());
                break;
            case 1:
                if (const auto found = pool.find(hash, tokens_of(content))) {
                    pool.share(*found);
                    table.push_back(*found);
                }
                break;
            case 2:
                if (!table.empty()) pool.index(table.back(), root_hash("", {}, 0), hash, tokens_of(content));
                break;
            default:
                while (!table.empty()) {
                    pool.release(table.back());
                    table.pop_back();
                }
        }
        std::vector<std::span<const BlockId>> held(tables.begin(), tables.end());
        pool.check_integrity(held);
    }
}

}  // namespace
}  // namespace lorry::engine
