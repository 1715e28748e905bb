// Reads the affinity mask, the control groups' quotas and the caches in /sys; see processors.h.
#include "kernels/processors.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "kernels/control_groups.h"

namespace lorry::kernels {

namespace {

int processors_of_mask() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Microseconds of processor time per period, on all processors together.
struct Quota {
    std::int64_t time = 0;
    std::int64_t period = 0;
};

// nullopt: no limit, which is "max" in version 2 and -1 in version 1.
std::optional<Quota> quota_of(const ControlGroup& group) {
    Quota quota;
    if (group.unified) {
        std::ifstream in(group.folder / "cpu.max");
        in >> quota.time >> quota.period;
    } else {
        std::ifstream(group.folder / "cpu.cfs_quota_us") >> quota.time;
        std::ifstream(group.folder / "cpu.cfs_period_us") >> quota.period;
    }
    if (quota.time <= 0 || quota.period <= 0) return std::nullopt;
    return quota;
}

}  // namespace

int usable_processors() {
    const int processors = processors_of_mask();
    return std::min(processors, processors_quota().value_or(processors));
}

std::optional<int> processors_quota(const std::filesystem::path& root) {
    std::optional<int> least;
    for (const ControlGroup& group : control_groups("cpu", root)) {
        const std::optional<Quota> quota = quota_of(group);
        if (!quota) continue;
        const auto processors = static_cast<int>((quota->time + quota->period - 1) / quota->period);
        least = std::min(least.value_or(processors), processors);
    }
    return least;
}

std::int64_t last_caches_bytes(int threads, const std::filesystem::path& root) {
    std::map<std::string, std::int64_t> caches;  // bytes by the list of processors that share the cache
    std::error_code none;
    for (const auto& processor : std::filesystem::directory_iterator(root / "sys/devices/system/cpu", none)) {
        const std::filesystem::path cache = processor.path() / "cache/index3";
        std::int64_t kibibytes = 0;
        std::string sharers;
        if (std::ifstream(cache / "size") >> kibibytes && std::ifstream(cache / "shared_cpu_list") >> sharers) {
            caches[sharers] = kibibytes * 1024;
        }
    }
    std::int64_t all = 0;
    std::int64_t largest = 0;
    for (const auto& [sharers, bytes] : caches) {
        all += bytes;
        largest = std::max(largest, bytes);
    }
    return std::min(all, threads * largest);
}

std::size_t machine_memory() {
    return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

}  // namespace lorry::kernels
