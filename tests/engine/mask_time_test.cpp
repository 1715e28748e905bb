// How long steps wait for masks: mask_time.h with made-up times.
#include "engine/mask_time.h"

#include <gtest/gtest.h>

namespace lorry::engine {
namespace {

constexpr MaskPatience fifth{.step_share = 0.2, .seconds_least = 0.001};

// Steps that each want one mask of so many seconds until one of them waits for it.
int steps_until_afforded(MaskTime& time, double mask) {
    for (int steps = 1; steps < 1000; ++steps) {
        time.begin(mask);
        const bool afforded = time.affords(0.0, mask);
        time.end(afforded ? mask : 0.0);
        if (afforded) return steps;
    }
    return 0;
}

TEST(MaskTime, IsAShareOfTheStepsTime) {
    MaskTime time(fifth);
    time.step_took(0.1);
    time.begin(0.004);
    EXPECT_TRUE(time.affords(0.0, 0.004));
    EXPECT_TRUE(time.affords(0.015, 0.004));
    EXPECT_FALSE(time.affords(0.017, 0.004));
}

TEST(MaskTime, HasAFloor) {
    MaskTime time(fifth);
    time.begin(0.0);
    EXPECT_TRUE(time.affords(0.0009, 0.0));
    EXPECT_FALSE(time.affords(0.0011, 0.0));
}

TEST(MaskTime, IsSavedForAMaskThatTakesLonger) {
    MaskTime time(fifth);
    time.step_took(0.1);
    EXPECT_EQ(steps_until_afforded(time, 0.019), 1);
    EXPECT_EQ(steps_until_afforded(time, 0.090), 5) << "0.02 seconds each, of which 0.001 was left";
    EXPECT_EQ(steps_until_afforded(time, 0.090), 4);
}

// Else a quiet hour would let a hostile grammar hold up many steps in a row.
TEST(MaskTime, IsNotSavedForMore) {
    MaskTime time(fifth);
    time.step_took(0.1);
    for (int i = 0; i < 100; ++i) {
        time.begin(0.0);
        time.end(0.0);
    }
    time.begin(0.0);
    EXPECT_TRUE(time.affords(0.019, 0.0));
    EXPECT_FALSE(time.affords(0.021, 0.0));
}

// A mask that takes long by chance is not held against its neighbours for ever.
TEST(MaskTime, HasABoundForDebts) {
    MaskTime time(fifth);
    time.begin(0.0);
    time.end(10.0);
    EXPECT_EQ(steps_until_afforded(time, 0.0), 10);
}

TEST(MaskTime, IsUnboundedWithoutPatience) {
    MaskTime time(std::nullopt);
    time.begin(1000.0);
    EXPECT_TRUE(time.affords(1000.0, 1000.0));
}

}  // namespace
}  // namespace lorry::engine
