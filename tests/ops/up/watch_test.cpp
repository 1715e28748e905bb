// A watch that sees something fail, and one that does not.
#include "ops/up/watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace lorry::ops {
namespace {

TEST(Watch, EndsTheWorkAndSaysWhy) {
    std::atomic<bool> is_called = false;
    Watch watch([] { throw std::runtime_error("it failed"); }, [&] { is_called = true; });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!is_called && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_TRUE(is_called);
    EXPECT_THROW(watch.end(), std::runtime_error);
}

TEST(Watch, SaysNothingWhereAllIsWell) {
    std::atomic<int> looks = 0;
    Watch watch([&] { ++looks; }, [] { ADD_FAILURE() << "nothing failed"; });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (looks == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_GT(looks, 0);
    EXPECT_NO_THROW(watch.end());
}

}  // namespace
}  // namespace lorry::ops
