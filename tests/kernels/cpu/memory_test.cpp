// The arenas of weights and adapters: pieces are zeroed, do not overlap, and are reused. How far apart rows of activations lie.
#include "kernels/cpu/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/backend.h"

namespace lorry::kernels::cpu {
namespace {

TEST(Rows, OfMatmulInputsBeginAtCacheLinesAnOddNumberApart) {
    const auto backend = make_cpu_backend({.threads = 1, .isa = {}, .storage = {}});
    EXPECT_EQ(backend->row_stride(Format::float32, 576), 576);
    for (const std::int64_t columns : {1, 31, 32, 33, 63, 64, 65, 576, 1536, 4096}) {
        for (const Format format : {Format::bfloat16, Format::int8_rows}) {
            const std::int64_t stride = backend->row_stride(format, columns);
            EXPECT_GE(stride, stride_least(format, columns));
            EXPECT_EQ(stride * static_cast<std::int64_t>(bytes_of(format)) % 128, 64) << name_of(format) << " " << columns;
        }
    }
    EXPECT_EQ(backend->row_stride(Format::int8_rows, 576), 11 * 16) << "580 bytes are ten lines";
    EXPECT_EQ(backend->row_stride(Format::bfloat16, 576), 19 * 32) << "1152 bytes are 18 lines";
}

TEST(Arena, WhatIsTakenInARowLiesInARow) {
    Arena arena;
    const Memory first(1000, arena);
    const Memory second(5000, arena);
    const Memory third(64, arena);
    EXPECT_GE(second.data() - first.data(), 1000);
    EXPECT_LT(second.data() - first.data(), 1200);
    EXPECT_LT(third.data() - second.data(), 5200);
}

TEST(Arena, WhatWasGivenBackIsUsedAgainAndZero) {
    Arena arena;
    const Memory stays(100, arena);
    auto goes = std::make_unique<Memory>(3000, arena);
    std::byte* const data = goes->data();
    std::memset(data, 0xFF, 3000);
    goes.reset();
    const Memory again(3000, arena);
    EXPECT_EQ(again.data(), data);
    EXPECT_TRUE(std::all_of(again.data(), again.data() + 3000, [](std::byte byte) { return byte == std::byte{0}; }));
}

// Pins: weights larger than an arena's usual map; the ends of large pieces do not take a new map.
TEST(Arena, PiecesOfAnySizeLieInARow) {
    Arena arena;
    constexpr std::size_t mebibyte = std::size_t{1} << 20;
    const Memory first(5 * mebibyte / 2, arena);
    auto largest = std::make_unique<Memory>(77 * mebibyte, arena);
    const Memory second(3 * mebibyte, arena);
    EXPECT_GE(second.data() - first.data(), static_cast<std::ptrdiff_t>(first.bytes()));
    EXPECT_LT(second.data() - first.data(), static_cast<std::ptrdiff_t>(first.bytes() + 200));
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    EXPECT_TRUE(std::all_of(largest->data(), largest->data() + largest->bytes(), is_zero));
    std::memset(largest->data(), 0xFF, largest->bytes());
    EXPECT_TRUE(std::all_of(second.data(), second.data() + second.bytes(), is_zero));
    largest.reset();
    const Memory again(70 * mebibyte, arena);
    EXPECT_TRUE(std::all_of(again.data(), again.data() + again.bytes(), is_zero));
}

// Pins: a piece keeps its contents while others are taken and given back; adjacent free ranges are joined.
TEST(Arena, PiecesDoNotOverlapInAnyOrderOfTakingAndGivingBack) {
    constexpr unsigned seed = 20261122;
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Arena arena;
    struct Piece {
        Memory memory;
        int fill = 0;
    };
    std::vector<Piece> pieces;
    for (int turn = 0; turn < 3000; ++turn) {
        if (pieces.size() < 40 || random() % 2 == 0) {
            Piece& piece = pieces.emplace_back(Piece{Memory(1 + random() % 200'000, arena), turn % 255 + 1});
            std::memset(piece.memory.data(), piece.fill, piece.memory.bytes());
            continue;
        }
        const std::size_t index = random() % pieces.size();
        const Piece& piece = pieces[index];
        ASSERT_TRUE(std::all_of(piece.memory.data(), piece.memory.data() + piece.memory.bytes(),
                                [&](std::byte byte) { return byte == static_cast<std::byte>(piece.fill); }))
            << "turn " << turn;
        std::swap(pieces[index], pieces.back());
        pieces.pop_back();
    }
    pieces.clear();
    // Larger than the gaps between the pieces.
    const Memory large(2'000'000, arena);
    EXPECT_TRUE(std::all_of(large.data(), large.data() + large.bytes(), [](std::byte byte) { return byte == std::byte{0}; }));
}

}  // namespace
}  // namespace lorry::kernels::cpu
