// Quotas and caches, read from a folder with files like the system's.
#include "kernels/processors.h"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace lorry::kernels {
namespace {

class Processors : public ::testing::Test {
protected:
    void write(const std::string& file, const std::string& text) {
        std::filesystem::create_directories((root_ / file).parent_path());
        tests::write_text(root_ / file, text);
    }
    std::optional<int> quota() const { return processors_quota(root_.path()); }
    std::int64_t caches(int threads) const { return last_caches_bytes(threads, root_.path()); }

private:
    tests::TempFolder root_;
};

TEST_F(Processors, AreAllThereAreWhereNothingSaysOtherwise) {
    EXPECT_EQ(quota(), std::nullopt);
    write("proc/self/cgroup", "0::/\n");
    EXPECT_EQ(quota(), std::nullopt);
    write("sys/fs/cgroup/cpu.max", "max 100000\n");
    EXPECT_EQ(quota(), std::nullopt);
}

// Pins: a container whose quota is two of 64 processors started 64 threads.
TEST_F(Processors, AreAsManyAsTheQuotaPaysForRoundedUp) {
    write("proc/self/cgroup", "0::/\n");
    write("sys/fs/cgroup/cpu.max", "200000 100000\n");
    EXPECT_EQ(quota(), 2);
    write("sys/fs/cgroup/cpu.max", "250000 100000\n");
    EXPECT_EQ(quota(), 3);
    write("sys/fs/cgroup/cpu.max", "1000 100000\n");
    EXPECT_EQ(quota(), 1);
}

TEST_F(Processors, AreThoseOfTheNarrowestGroupAboveTheProcess) {
    write("proc/self/cgroup", "0::/slice/pod/container\n");
    write("sys/fs/cgroup/slice/cpu.max", "800000 100000\n");
    write("sys/fs/cgroup/slice/pod/cpu.max", "300000 100000\n");
    write("sys/fs/cgroup/slice/pod/container/cpu.max", "max 100000\n");
    EXPECT_EQ(quota(), 3);
}

TEST_F(Processors, AreLimitedByGroupsOfTheFirstGenerationToo) {
    write("proc/self/cgroup", "5:memory:/docker/1\n3:cpu,cpuacct:/docker/1\n1:name=systemd:/docker/1\n");
    write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(quota(), std::nullopt);
    // Inside the container its group is mounted at the top.
    write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
    EXPECT_EQ(quota(), 4);
    write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "75000\n");
    write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us", "50000\n");
    EXPECT_EQ(quota(), 2);
}

TEST_F(Processors, OfThisProcessAreAtLeastOne) {
    EXPECT_GE(usable_processors(), 1);
    EXPECT_GE(processors_quota().value_or(1), 1);
}

// Pins: a measurement of memory that fits into the caches.
TEST_F(Processors, HaveBetweenThemTheLastCachesThatTheyDoNotShare) {
    EXPECT_EQ(caches(4), 0);
    const auto processor = [&](const std::string& name, const std::string& size, const std::string& sharers) {
        write("sys/devices/system/cpu/" + name + "/cache/index3/size", size);
        write("sys/devices/system/cpu/" + name + "/cache/index3/shared_cpu_list", sharers);
    };
    processor("cpu0", "32768K\n", "0-1\n");
    processor("cpu1", "32768K\n", "0-1\n");
    processor("cpu2", "98304K\n", "2-3\n");
    processor("cpu3", "98304K\n", "2-3\n");
    write("sys/devices/system/cpu/online", "0-3\n");
    constexpr std::int64_t mebi = 1 << 20;
    EXPECT_EQ(caches(1), 96 * mebi);
    EXPECT_EQ(caches(4), 128 * mebi);
}

}  // namespace
}  // namespace lorry::kernels
