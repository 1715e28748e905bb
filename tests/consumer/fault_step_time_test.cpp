// The step times of the fault tests' engine (tests/faults/step_time.h).
#include "tests/faults/step_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace lorry::faults {
namespace {

std::vector<double> draws(const std::string& text, std::uint64_t seed = 7) {
    StepTime time(text, seed);
    std::vector<double> drawn(10'000);
    for (double& one : drawn) one = static_cast<double>(time.next().count());
    return drawn;
}

double mean(const std::vector<double>& of) {
    double sum = 0;
    for (const double one : of) sum += one;
    return sum / static_cast<double>(of.size());
}

double share_below(const std::vector<double>& of, double limit) {
    return static_cast<double>(std::ranges::count_if(of, [&](double one) { return one < limit; })) / static_cast<double>(of.size());
}

TEST(StepTime, HasTheShapeThatWasAskedFor) {
    EXPECT_EQ(draws("250"), std::vector<double>(10'000, 250));

    const auto uniform = draws("uniform:100..300");
    EXPECT_EQ(std::ranges::min(uniform), 100);
    EXPECT_EQ(std::ranges::max(uniform), 300);
    EXPECT_NEAR(mean(uniform), 200, 5);

    const auto exponential = draws("exponential:10000");
    EXPECT_NEAR(mean(exponential), 10'000, 500);
    EXPECT_NEAR(share_below(exponential, 10'000), 0.632, 0.02) << "1 - 1/e are below the mean: a long tail";
}

TEST(StepTime, IsTheSameAgainUnderTheSameSeed) {
    EXPECT_EQ(draws("exponential:10000", 3), draws("exponential:10000", 3));
    EXPECT_NE(draws("exponential:10000", 3), draws("exponential:10000", 4));
}

TEST(StepTime, RefusesWhatItDoesNotKnow) {
    for (const char* wrong : {"", "fast", "-1", "10ms", "5..10", "uniform:5", "uniform:10..5", "uniform:5..", "exponential:0",
                              "exponential:5..10", "normal:5"}) {
        EXPECT_THROW(StepTime(wrong, 1), UsageError) << wrong;
    }
}

}  // namespace
}  // namespace lorry::faults
