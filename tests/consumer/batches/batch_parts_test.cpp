// What a batch's owner is made of: where it reads results from, and the lines of a file.
#include <gtest/gtest.h>

#include "consumer/batches/batch_run.h"
#include "tests/support/fake_batches.h"

namespace lorry::consumer {
namespace {

TEST(EarlierPositions, AreThoseThatAllRunsNeed) {
    using Positions = BatchRun::Positions;
    EXPECT_EQ(earlier_positions({}, {}), std::nullopt);
    EXPECT_EQ(earlier_positions({{0, 5}}, {}), std::nullopt) << "results from now on";
    EXPECT_EQ(earlier_positions({{0, 5}}, {{0, 5}}), std::nullopt);
    EXPECT_EQ(earlier_positions({{0, 5}}, {{0, 7}}), std::nullopt);
    EXPECT_EQ(earlier_positions({}, {{0, 7}, {1, 3}}), (Positions{{0, 7}, {1, 3}}));
    EXPECT_EQ(earlier_positions({{0, 5}, {1, 9}}, {{0, 7}, {1, 3}}), (Positions{{0, 5}, {1, 3}}));
    // Pins: results in a partition that was added while the batch ran were lost.
    EXPECT_EQ(earlier_positions({{0, 5}, {1, 9}}, {{0, 7}}), (Positions{{0, 5}, {1, 0}}));
    EXPECT_EQ(earlier_positions({{0, 5}, {1, 0}}, {{0, 7}}), std::nullopt);
}

// Pins: it returned such a line again and again.
TEST(LineReader, ReadsNothingBehindALineThatIsTooLong) {
    tests::MemoryStore store;
    store.put("file", "one\n" + std::string(100, 'x') + "\ntwo\n");
    LineReader lines(store.open("file", 0), 0, 10);
    EXPECT_EQ(lines.next()->text, "one");
    const auto line = lines.next();
    ASSERT_TRUE(line);
    EXPECT_TRUE(line->is_too_long);
    EXPECT_FALSE(lines.next());
}

}  // namespace
}  // namespace lorry::consumer
