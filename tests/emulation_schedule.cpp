// Chooses the order in which the emulated GPU's threads run in a test. By default it is drawn from a seed that each start of a test program
// draws and prints, so that a missing barrier shows sooner or later. LORRY_EMULATED_SEED=NUMBER repeats the order of another start;
// LORRY_EMULATED_ORDER chooses random, ascending, descending or run_ahead. Linked into each test program with an emulated GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string_view>
#include <utility>

#include "kernels/cuda/emulation/machine.h"
#include "schema/check.h"

namespace lorry::tests {

namespace {

using kernels::cuda::emulation::Order;
using kernels::cuda::emulation::Schedule;

constexpr std::array<std::pair<const char*, Order>, 4> orders{
    {{"random", Order::random}, {"ascending", Order::ascending}, {"descending", Order::descending}, {"run_ahead", Order::run_ahead}}};

std::uint64_t chosen_seed() {
    const char* const wanted = std::getenv("LORRY_EMULATED_SEED");
    if (wanted == nullptr) return std::random_device()();
    const std::string_view text = wanted;
    std::uint64_t seed = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), seed);
    CHECK(error == std::errc() && end == text.end(), "LORRY_EMULATED_SEED is a number");
    return seed;
}

class ScheduleEachTest : public ::testing::EmptyTestEventListener {
    void OnTestProgramStart(const ::testing::UnitTest&) override {
        const char* const wanted = std::getenv("LORRY_EMULATED_ORDER");
        const auto order = std::ranges::find(orders, std::string_view(wanted == nullptr ? orders.front().first : wanted),
                                             [](const auto& known) { return std::string_view(known.first); });
        CHECK(order != orders.end(), "LORRY_EMULATED_ORDER is random, ascending, descending or run_ahead");
        schedule_ = {.order = order->second, .seed = chosen_seed()};
        std::cout << "emulated GPU: threads in the order LORRY_EMULATED_ORDER=" << order->first << " LORRY_EMULATED_SEED=" << schedule_.seed
                  << '\n'
                  << std::flush;
    }
    // Restarts for each test, so that a test runs alone as it does among others.
    void OnTestStart(const ::testing::TestInfo&) override { kernels::cuda::emulation::set_schedule(schedule_); }

    Schedule schedule_;
};

[[maybe_unused]] const bool is_registered = [] {
    ::testing::UnitTest::GetInstance()->listeners().Append(new ScheduleEachTest);
    return true;
}();

}  // namespace

}  // namespace lorry::tests
