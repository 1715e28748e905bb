// Reads /proc and the memory limits of control groups.
#include "ops/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "kernels/control_groups.h"
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
    const auto value = parse_integer(word);  // "max" is not a number: there is no limit
    if (!value) return std::nullopt;
    return static_cast<std::size_t>(*value);
}

// A control group's memory.
struct GroupMemory {
    std::optional<std::size_t> limit;
    std::size_t used = 0;  // without the cache, which the kernel gives back at once
};

GroupMemory memory_of(const kernels::ControlGroup& group) {
    const auto read = [&](const char* limit, const char* usage, const char* cached) {
        GroupMemory memory{.limit = number_in(group.folder / limit), .used = number_in(group.folder / usage).value_or(0)};
        memory.used -= std::min(memory.used, field_of(group.folder / "memory.stat", cached).value_or(0));
        return memory;
    };
    return group.unified ? read("memory.max", "memory.current", "inactive_file")
                         : read("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
}

}  // namespace

std::size_t memory_available() {
    std::size_t available = unlimited;
    if (const auto kibibytes = field_of("/proc/meminfo", "MemAvailable:")) available = *kibibytes * 1024;
    for (const kernels::ControlGroup& group : kernels::control_groups("memory")) {
        const GroupMemory memory = memory_of(group);
        if (memory.limit) available = std::min(available, *memory.limit - std::min(*memory.limit, memory.used));
    }
    return available;
}

std::size_t memory_limit() {
    std::size_t limit = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
    for (const kernels::ControlGroup& group : kernels::control_groups("memory")) {
        limit = std::min(limit, memory_of(group).limit.value_or(unlimited));
    }
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

void forget_memory_peak() {
    std::ofstream("/proc/self/clear_refs") << "5";  // proc(5): resets the peak
}

}  // namespace lorry::ops
