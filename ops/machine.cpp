// /proc and the control groups of Linux, both generations.
#include "ops/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "ops/units.h"

namespace lorry::ops {
namespace {

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

// "Name:   123 kB" in files like /proc/meminfo, "name 123" in memory.stat.
std::optional<std::size_t> field_of(const std::filesystem::path& file, const std::string& name) {
    std::ifstream in(file);
    std::string word;
    std::string rest;
    while (in >> word) {
        std::getline(in, rest);
        if (word != name) continue;
        const std::size_t begin = rest.find_first_not_of(' ');
        if (begin == std::string::npos) return std::nullopt;
        const auto value = parse_integer(rest.substr(begin, rest.find(' ', begin) - begin));
        if (!value) return std::nullopt;
        return static_cast<std::size_t>(*value);
    }
    return std::nullopt;
}

std::optional<std::size_t> number_in(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::string word;
    if (!(in >> word)) return std::nullopt;
    const auto value = parse_integer(word);  // "max" is none
    if (!value) return std::nullopt;
    return static_cast<std::size_t>(*value);
}

struct Group {
    std::optional<std::size_t> limit;
    std::size_t used = 0;  // without what the kernel would give back at once
};

Group read_group(const std::filesystem::path& folder, const char* limit, const char* usage, const char* cached) {
    Group group{.limit = number_in(folder / limit), .used = number_in(folder / usage).value_or(0)};
    group.used -= std::min(group.used, field_of(folder / "memory.stat", cached).value_or(0));
    return group;
}

// Calls look(group) for the process's group and all above it.
template <typename Look>
void for_each_group(const Look& look) {
    const std::filesystem::path root = "/sys/fs/cgroup";
    std::ifstream in("/proc/self/cgroup");
    std::string line;
    while (std::getline(in, line)) {
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const bool unified = controllers.empty();
        if (!unified && controllers != "memory") continue;
        const std::filesystem::path top = unified ? root : root / "memory";
        std::filesystem::path inside = std::filesystem::path(line.substr(second + 1)).relative_path();
        while (true) {
            look(unified ? read_group(top / inside, "memory.max", "memory.current", "inactive_file")
                         : read_group(top / inside, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"));
            if (inside.empty()) break;
            inside = inside.parent_path();
        }
    }
}

}  // namespace

std::size_t memory_available() {
    std::size_t available = unlimited;
    if (const auto kibibytes = field_of("/proc/meminfo", "MemAvailable:")) available = *kibibytes * 1024;
    for_each_group([&](const Group& group) {
        if (group.limit) available = std::min(available, *group.limit - std::min(*group.limit, group.used));
    });
    return available;
}

std::size_t memory_limit() {
    std::size_t limit = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
    for_each_group([&](const Group& group) { limit = std::min(limit, group.limit.value_or(unlimited)); });
    return limit;
}

std::string cpu_model() {
    std::ifstream in("/proc/cpuinfo");
    std::string line;
    while (std::getline(in, line)) {
        const std::size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
    }
    return "unknown processor";
}

std::size_t memory_peak() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

}  // namespace lorry::ops
