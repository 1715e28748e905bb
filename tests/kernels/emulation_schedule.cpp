// Before each test, the emulated GPU's threads are told in which order to run: drawn from the test's seed, or as the environment variable
// LORRY_EMULATED_ORDER says (random, ascending, descending, run_ahead). A failed test prints both.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>

#include "kernels/cuda/emulation/machine.h"
#include "schema/check.h"

namespace lorry::kernels::testing {

namespace {

using cuda::emulation::Order;

constexpr std::array<std::pair<const char*, Order>, 4> orders{
    {{"random", Order::random}, {"ascending", Order::ascending}, {"descending", Order::descending}, {"run_ahead", Order::run_ahead}}};

class ScheduleEachTest : public ::testing::EmptyTestEventListener {
    void OnTestStart(const ::testing::TestInfo&) override {
        const char* const wanted = std::getenv("LORRY_EMULATED_ORDER");
        name_ = wanted == nullptr ? orders.front().first : wanted;
        const auto seed = static_cast<std::uint64_t>(::testing::GTEST_FLAG(random_seed));
        bool known = false;
        for (const auto& [name, order] : orders) {
            if (name_ != name) continue;
            known = true;
            cuda::emulation::set_schedule({.order = order, .seed = seed});
        }
        CHECK(known, "LORRY_EMULATED_ORDER is random, ascending, descending or run_ahead");
    }
    void OnTestEnd(const ::testing::TestInfo& info) override {
        if (!info.result()->Failed()) return;
        std::cout << "emulated GPU: order " << name_ << ", seed " << ::testing::GTEST_FLAG(random_seed) << '\n';
    }

    std::string name_;
};

[[maybe_unused]] const bool is_registered = [] {
    ::testing::UnitTest::GetInstance()->listeners().Append(new ScheduleEachTest);
    return true;
}();

}  // namespace

}  // namespace lorry::kernels::testing
