// The probes that measure the machine's limits.
#include "kernels/cpu/rates.h"

#include <gmock/gmock.h>

#include "kernels/cpu/isa.h"
#include "tests/support/labels.h"

namespace lorry::kernels::cpu {
namespace {

using ::testing::Gt;

// Sanitizers see all of the code in one of these tests, the one with several threads. A test takes gigabytes of memory, far more than the
// caches.
const tests::Labelled once_under_sanitizers{"*/RatesTest.*/0:RatesOfInt8.*", {tests::Label::not_asan, tests::Label::not_tsan}};

class RatesTest : public ::testing::TestWithParam<int> {};

// Three threads, which divide none of the sizes.
TEST_P(RatesTest, AreMeasuredOnAnyNumberOfThreads) {
    const Rates rates = measure_rates(GetParam(), std::nullopt);
    EXPECT_EQ(rates.threads, GetParam());
    EXPECT_THAT((std::vector{rates.copy, rates.read, rates.float32, rates.int8_dot.value()}), ::testing::Each(Gt(0.0)));
}

// Pins: the int8 limit was measured without tiles unless these were asked for, so that kernels with tiles exceeded it.
TEST(RatesOfInt8, AreThoseOfTilesWhicheverInstructionsAreInUse) {
    if (!supported(CpuIsa::avx512amx)) GTEST_SKIP() << "this machine has no tiles";
    const double with = measure_rates(1, CpuIsa::avx512amx).int8_dot.value();
    EXPECT_GT(measure_rates(1, CpuIsa::avx512).int8_dot.value(), with / 4.0) << "tiles do several times as much as other instructions";
}

INSTANTIATE_TEST_SUITE_P(Threads, RatesTest, ::testing::Values(1, 3));

}  // namespace
}  // namespace lorry::kernels::cpu
