// How a process ends by signals, each in a process of its own.
#include "ops/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

namespace lorry::ops {
namespace {

using namespace std::chrono_literals;

void hang_after_a_signal(std::chrono::milliseconds patience, int signals) {
    SignalWatcher watcher;
    const SignalWatcher::Armed armed(
        watcher, [] {}, patience);
    for (int i = 0; i < signals; ++i) {
        kill(getpid(), SIGTERM);
        std::this_thread::sleep_for(200ms);
    }
    std::this_thread::sleep_for(60s);
}

TEST(SignalWatcherDeathTest, EndsAProcessThatDoesNotComeToItsEnd) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EXIT(hang_after_a_signal(500ms, 1), ::testing::ExitedWithCode(1), "");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
}

TEST(SignalWatcherDeathTest, ASecondSignalEndsItAtOnce) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(hang_after_a_signal(60s, 2), ::testing::ExitedWithCode(128 + SIGTERM), "");
}

}  // namespace
}  // namespace lorry::ops
