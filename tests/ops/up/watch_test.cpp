// A watch that sees something fail, and one that does not.
#include "ops/up/watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace lorry::ops {
namespace {

TEST(Watch, EndsTheWorkAndSaysWhy) {
    std::atomic<bool> is_called = false;
    Watch watch([] { throw std::runtime_error("it failed"); }, [&] { is_called = true; });
    while (!is_called) std::this_thread::yield();
    EXPECT_THROW(watch.end(), std::runtime_error);
}

TEST(Watch, SaysNothingWhereAllIsWell) {
    std::atomic<int> looks = 0;
    Watch watch([&] { ++looks; }, [] { ADD_FAILURE() << "nothing failed"; });
    while (looks == 0) std::this_thread::yield();
    EXPECT_NO_THROW(watch.end());
}

}  // namespace
}  // namespace lorry::ops
