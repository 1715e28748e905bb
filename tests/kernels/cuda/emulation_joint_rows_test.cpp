// Rows of which several blocks compute parts: the block that completes a row converts it to fp8, in any order of blocks and threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <span>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/joint_rows.h"
#include "tests/support/labels.h"

namespace lorry::kernels::cuda {

namespace {

using emulation::Order;

constexpr int per_block = 64;

// In every row, block b of n has the columns that begin at b / n of the row, and counts as b + 1 parts.
__global__ void compute_jointly(JointRows joint, View wide, const float* from, int rows) {
    const int begin = joint.columns * block().x / grid().x;
    const int end = joint.columns * (block().x + 1) / grid().x;
    for (int row = 0; row < rows; ++row) {
        for (int i = begin + thread_in_block(); i < end; i += block_threads()) {
            const float x = from[row * joint.columns + i];
            static_cast<float*>(wide.data)[row * wide.stride + i] = x;
            note_largest(joint, row, magnitude_bits(x));
        }
    }
    quantize_whole_rows<4>(joint, 0, rows, shared_memory<JointScratch>(), [&](int) { return block().x + 1; });
}

// Pins: codes are stored where other threads still read, for any width and alignment of rows; a row is converted to fp8 before its last
// part was stored, or twice; one launch leaves state for the next.
TEST(JointRows, BecomeFp8InTheirOwnPlaceWhenTheLastOfTheirPartsIsThere) {
    constexpr int rows = 3;
    for (const Order order : {Order::random, Order::ascending, Order::descending, Order::run_ahead}) {
        emulation::set_schedule({order, 5});
        for (const int columns : {4, 35, 600, 16'404}) {
            for (const int padding : {1, 4}) {
                const std::int64_t stride = columns + padding;
                const auto floats = [](std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count)); };
                std::vector<float> from = floats(rows * columns);
                for (std::size_t i = 0; i < from.size(); ++i) from[i] = std::sin(static_cast<float>(i));
                std::vector<RowProgress> progress(rows);
                for (const int blocks : {1, 2, 7}) {
                    std::vector<float> place = floats(rows * stride);
                    std::vector<float> scales = floats(rows);
                    const JointRows joint{.rows = {place.data(), Format::fp8_rows, stride * std::int64_t{sizeof(float)}, scales.data()},
                                          .progress = progress.data(),
                                          .parts = blocks * (blocks + 1) / 2,
                                          .columns = columns};
                    launch(compute_jointly,
                           {.blocks = {blocks}, .threads = per_block, .shared_bytes = sizeof(JointScratch), .stream = nullptr}, joint,
                           View{place.data(), Format::float32, stride}, from.data(), rows);
                    for (std::int64_t row = 0; row < rows; ++row) {
                        const std::span wide = std::span(from).subspan(static_cast<std::size_t>(row * columns), std::size_t(columns));
                        std::uint32_t largest = 0;
                        for (const float x : wide) largest = std::max(largest, magnitude_bits(x));
                        const float scale = fp8_scale(largest);
                        EXPECT_EQ(scales[static_cast<std::size_t>(row)], scale);
                        const auto* const codes = reinterpret_cast<const Fp8*>(place.data() + row * stride);
                        std::int64_t wrong = 0;
                        for (std::size_t i = 0; i < wide.size(); ++i) wrong += codes[i].bits != fp8_of(wide[i] * (1.0F / scale)).bits;
                        EXPECT_EQ(wrong, 0) << columns << " columns of " << blocks << " blocks";
                    }
                    for (const RowProgress& each : progress) EXPECT_EQ(each.parts + each.largest, 0U);
                }
            }
        }
    }
}

#if defined(__SANITIZE_THREAD__)
// Exit code 66 is the sanitizer's for a race.
__global__ void read_all_parts(std::uint32_t* parts, std::uint32_t* count, std::uint32_t* sum, bool arrives) {
    if (thread_in_block() == 0) parts[block().x] = 1;
    barrier();
    if (thread_in_block() != 0) return;
    if (arrives && arrive(count, 1U) + 1 != static_cast<std::uint32_t>(grid().x)) return;
    std::uint32_t all = 0;
    for (int i = 0; i < grid().x; ++i) all += parts[i];
    atomic_max(sum, all);
}

const tests::Labelled joint_rows_with_tsan{"EmulationDeathTest.*", {tests::Label::not_tsan, tests::Label::tsan_cuda}};
TEST(EmulationDeathTest, ReadingOtherBlocksPartsIsARaceAndNoneOfTheLastToArrive) {
    const auto read = [](bool arrives) {
        std::array<std::uint32_t, 20> parts{};
        std::uint32_t count = 0;
        std::uint32_t sum = 0;
        launch(read_all_parts, {.blocks = {20}, .threads = per_block, .shared_bytes = 0, .stream = nullptr}, parts.data(), &count, &sum,
               arrives);
        std::exit(sum == 20 ? 0 : 1);
    };
    EXPECT_EXIT(read(false), ::testing::ExitedWithCode(66), "data race");
    EXPECT_EXIT(read(true), ::testing::ExitedWithCode(0), "");
}
#endif

}  // namespace

}  // namespace lorry::kernels::cuda
