// The pool computes every item once, at any size; helps a slow thread; lets idle threads sleep.
#include "kernels/thread_pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "tests/support/labels.h"

namespace lorry::kernels {

namespace {

using std::chrono::milliseconds;

TEST(ThreadPool, RunsEveryItemOnceAndShowsItsWritesToTheCaller) {
    for (const int threads : {1, 2, 4, 16, 64, 192}) {
        ThreadPool pool(threads);
        ASSERT_EQ(pool.threads(), threads);
        const int rounds = threads <= 4 ? 300 : 51;
        for (int round = 0; round < rounds; ++round) {
            const std::int64_t items = round % 50 == 0 ? 5000 : round % 23;
            const std::int64_t piece = 1 + round % 5;
            std::vector<int> done(static_cast<std::size_t>(items), 0);  // plain ints: a race shows under the thread sanitizer
            std::atomic<bool> sound{true};
            pool.run(items, piece, [&](std::int64_t begin, std::int64_t end, int thread) {
                if (begin >= end || end - begin > piece || thread < 0 || thread >= threads) sound = false;
                for (std::int64_t i = begin; i < end; ++i) ++done[static_cast<std::size_t>(i)];
            });
            ASSERT_TRUE(sound);
            ASSERT_EQ(std::count(done.begin(), done.end(), 1), items) << "round " << round;
        }
    }
}

TEST(ThreadPool, HelpsAThreadThatLags) {
    ThreadPool pool(2);
    std::atomic<int> by_the_lagging{0};
    std::atomic<int> by_the_caller{0};
    pool.run(100, 1, [&](std::int64_t, std::int64_t, int thread) {
        if (thread == 0) {
            ++by_the_caller;
        } else {
            ++by_the_lagging;
            std::this_thread::sleep_for(milliseconds(20));
        }
    });
    EXPECT_EQ(by_the_caller + by_the_lagging, 100);
    // Without help it would compute its own 50.
    EXPECT_LT(by_the_lagging, 40);
}

TEST(ThreadPool, SleepsWhenThereIsNothingToDo) {
    ThreadPool pool(4);
    pool.run(100, 1, [](std::int64_t, std::int64_t, int) {});
    std::this_thread::sleep_for(milliseconds(20));
    const auto processor_time = [] {
        timespec time{};
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
    };
    const auto before = processor_time();
    std::this_thread::sleep_for(milliseconds(200));
    EXPECT_LT(processor_time() - before, milliseconds(40));
}

const tests::Labelled on_gpu{"OnHost.*", {tests::Label::on_cuda}};
TEST(OnHost, CallsEachOnceAndShowsItsWritesToTheCaller) {
    std::vector<std::unique_ptr<Backend>> backends;
    for (const int threads : {1, 3}) backends.push_back(make_cpu_backend({.threads = threads, .isa = {}, .storage = {}}));
    if (!cuda_obstacle()) backends.push_back(make_cuda_backend({.storage = {}}));
    for (const auto& backend : backends) {
        for (const std::int64_t count : {0, 1, 2, 3, 100}) {
            std::vector<int> done(static_cast<std::size_t>(count), 0);
            backend->on_host(count, [&](std::int64_t i) { ++done[static_cast<std::size_t>(i)]; });
            EXPECT_EQ(std::ranges::count(done, 1), count);
        }
    }
}

}  // namespace

}  // namespace lorry::kernels
