// The fault tests' watch for periods in which no job ends (tests/faults/progress_watch.h).
#include "tests/faults/progress_watch.h"

#include <gtest/gtest.h>

namespace lorry::faults {
namespace {

using std::chrono::seconds;

ProgressWatch::Time at(int second) { return ProgressWatch::Time() + seconds(second); }

// Ten jobs are left, and the watch has been running since second 0.
ProgressWatch busy_watch() {
    ProgressWatch watch;
    watch.expect(10, at(0));
    watch.begin(at(0));
    return watch;
}

TEST(FaultProgressWatch, MeasuresTheLongestTimeBetweenTwoEnds) {
    ProgressWatch watch = busy_watch();
    for (const int second : {1, 6, 8}) watch.end(at(second));
    EXPECT_EQ(watch.stop(at(9)), seconds(5));
}

TEST(FaultProgressWatch, CountsTheTimeBeforeTheFirstEndAndTheOneInProgress) {
    ProgressWatch watch = busy_watch();
    watch.end(at(7));
    watch.end(at(8));
    EXPECT_EQ(watch.pause(at(10)), seconds(2));
    EXPECT_EQ(watch.stop(at(10)), seconds(7));
    watch.begin(at(20));
    watch.end(at(21));
    EXPECT_EQ(watch.stop(at(30)), seconds(9)) << "the earlier watch must not count";
}

TEST(FaultProgressWatch, CountsNothingWhileAFaultLasts) {
    ProgressWatch watch = busy_watch();
    EXPECT_EQ(watch.stop(at(1)), seconds(1));
    watch.end(at(60));
    EXPECT_EQ(watch.pause(at(90)), seconds(0));
    EXPECT_EQ(watch.stop(at(90)), std::nullopt);
    watch.begin(at(100));
    EXPECT_EQ(watch.stop(at(103)), seconds(3));
}

TEST(FaultProgressWatch, CountsNothingWhileNoJobIsLeft) {
    ProgressWatch watch;
    watch.expect(1, at(0));
    watch.begin(at(0));
    watch.end(at(2));
    EXPECT_EQ(watch.pause(at(50)), seconds(0));
    watch.expect(1, at(50));
    EXPECT_EQ(watch.pause(at(51)), seconds(1)) << "the pause begins when a job is left again";
    watch.end(at(53));
    EXPECT_EQ(watch.stop(at(90)), seconds(3));
}

TEST(FaultProgressWatch, MoreJobsAreNoProgress) {
    ProgressWatch watch = busy_watch();
    watch.expect(10, at(4));
    EXPECT_EQ(watch.stop(at(5)), seconds(5));
}

}  // namespace
}  // namespace lorry::faults
