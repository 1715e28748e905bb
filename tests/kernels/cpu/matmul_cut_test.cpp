// How matmuls are divided: evenly, if there is enough work for all threads.
#include "kernels/cpu/matmul_cut.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/thread_pool.h"

namespace lorry::kernels::cpu {
namespace {

Panels panels_of(std::int64_t in_features, std::int64_t out_features, std::int64_t group) {
    Panels panels;
    panels.width = 48;
    panels.group = group;
    panels.in_features = in_features;
    panels.out_features = out_features;
    return panels;
}

constexpr CacheBlock block{.rows = 240};

// The panels of each of two threads, if neither helps the other.
std::string shares(std::int64_t rows, const Panels& panels) {
    const MatmulCut cut = cut_of_matmul(rows, panels, 1, 2, block);
    if (cut.chunks * cut.runs <= cut.piece) return std::to_string(cut.chunks * cut.runs);
    const std::int64_t half = ThreadPool::share_begin(cut.chunks * cut.runs, 1, 2);
    return std::to_string(half) + "/" + std::to_string(cut.chunks * cut.runs - half);
}

TEST(MatmulCut, GivesTwoThreadsTheSameOfTheMatricesOfASmallModel) {
    for (const std::int64_t group : {2, 4}) {
        for (const std::int64_t rows : {1, 64}) {
            EXPECT_EQ(shares(rows, panels_of(576, 960, group)), "10/10");
            EXPECT_EQ(shares(rows, panels_of(576, 576, group)), "6/6");
            EXPECT_EQ(shares(rows, panels_of(1536, 576, group)), "6/6");
        }
    }
    // Panels so small that a piece would be ten of them are still divided in half.
    EXPECT_EQ(cut_of_matmul(1, panels_of(128, 576, 4), 1, 2, block).piece, 10);
    EXPECT_EQ(shares(1, panels_of(128, 576, 4)), "6/6");
    EXPECT_EQ(shares(1, panels_of(128, 384, 4)), "8") << "too little work for two threads";
}

TEST(MatmulCut, GivesThreadsRowsOfTheirOwnWhereThereAreEnough) {
    const auto chunks = [](std::int64_t rows, int threads) {
        return cut_of_matmul(rows, panels_of(576, 960, 4), 1, threads, block).chunks;
    };
    EXPECT_EQ(chunks(191, 2), 1);
    EXPECT_EQ(chunks(192, 2), 2);
    EXPECT_EQ(chunks(480, 2), 2);
    EXPECT_EQ(chunks(481, 2), 4);
    EXPECT_EQ(chunks(480, 1), 2);
    const auto own_rows = [](std::int64_t rows, int threads) {
        return cut_of_matmul(rows, panels_of(576, 960, 4), 1, threads, block).own_rows;
    };
    EXPECT_FALSE(own_rows(191, 2));
    EXPECT_TRUE(own_rows(192, 2));
    EXPECT_FALSE(own_rows(64, 1)) << "a few rows on a single thread wait for weights";
    for (const int threads : {1, 2, 3, 8}) {
        for (std::int64_t rows = 1; rows < 2000; rows += 7)
            EXPECT_LE((rows + chunks(rows, threads) - 1) / chunks(rows, threads), block.rows);
    }
}

// Rows of 8 KB: 4,096 inputs of bfloat16.
TEST(MatmulCut, LetsPanelsSharePassesOverRowsThatDoNotFitIntoTheCache) {
    constexpr DotKernels plain{.row_chunk = 240};
    constexpr DotKernels tiles{.row_chunk = 512, .panel_group = 16};
    const auto together = [&](std::int64_t rows, std::int64_t row_bytes, int threads) {
        return cache_block_of(&tiles, rows, row_bytes, threads).panels;
    };
    EXPECT_EQ(cache_block_of(nullptr, 1024, 8192, 2).rows, common_row_chunk);
    EXPECT_EQ(cache_block_of(&plain, 1024, 8192, 2).rows, 128);
    EXPECT_EQ(cache_block_of(&plain, 1024, 8192, 2).panels, 1);
    EXPECT_EQ(cache_block_of(&tiles, 1024, 1152, 2).rows, 512);
    EXPECT_EQ(together(1024, 1152, 2), 1);
    EXPECT_EQ(cache_block_of(&tiles, 1024, 3072, 2).rows, 266);
    EXPECT_EQ(together(1024, 3072, 2), 1);
    EXPECT_EQ(cache_block_of(&tiles, 1024, 8192, 2).rows, 512);
    EXPECT_EQ(together(1024, 8192, 2), 16);
    EXPECT_EQ(together(256, 8192, 2), 1) << "each thread's share of the rows fits";
    EXPECT_EQ(together(1024, 8192, 16), 1);
    EXPECT_EQ(together(32, 28'672, 2), 1);
    EXPECT_EQ(together(64, 28'672, 2), 16);
    EXPECT_EQ(together(128, 28'672, 4), 16) << "threads get panels, not rows of their own";

    const auto piece = [](std::int64_t out_features, int threads) {
        return cut_of_matmul(1024, panels_of(4096, out_features, 2), 1, threads, {.rows = 512, .panels = 16}).piece;
    };
    EXPECT_EQ(piece(28'672, 2), 16);
    EXPECT_EQ(piece(28'672, 64), 9) << "threads could not help each other";
    EXPECT_EQ(piece(48, 64), 1);
}

}  // namespace
}  // namespace lorry::kernels::cpu
