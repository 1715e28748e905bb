// The probes behind every "share of what the machine can do".
#include "kernels/cpu/rates.h"

#include <gmock/gmock.h>

namespace lorry::kernels::cpu {
namespace {

using ::testing::Gt;

class RatesTest : public ::testing::TestWithParam<int> {};

// Three threads: a number that divides none of the sizes.
TEST_P(RatesTest, AreMeasuredOnAnyNumberOfThreads) {
    const Rates rates = measure_rates(GetParam(), std::nullopt);
    EXPECT_EQ(rates.threads, GetParam());
    EXPECT_THAT((std::vector{rates.copy, rates.read, rates.float32, rates.int8_dot.value()}), ::testing::Each(Gt(0.0)));
}

INSTANTIATE_TEST_SUITE_P(Threads, RatesTest, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace lorry::kernels::cpu
