// Reads /proc/self/cgroup and finds where the groups are mounted; see control_groups.h.
#include "kernels/control_groups.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace lorry::kernels {

namespace {

// Whether a list such as "cpu,cpuacct" has the controller.
bool is_one_of(std::string_view list, std::string_view word) {
    while (!list.empty()) {
        const std::size_t end = std::min(list.find(','), list.size());
        if (list.substr(0, end) == word) return true;
        list.remove_prefix(std::min(end + 1, list.size()));
    }
    return false;
}

}  // namespace

std::vector<ControlGroup> control_groups(std::string_view controller, const std::filesystem::path& root) {
    std::vector<ControlGroup> groups;
    const std::filesystem::path mount = root / "sys/fs/cgroup";
    std::ifstream in(root / "proc/self/cgroup");
    std::string line;
    while (std::getline(in, line)) {  // number:controllers:path
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
        const bool unified = controllers.empty();
        if (!unified && !is_one_of(controllers, controller)) continue;
        const std::filesystem::path top = unified ? mount : mount / controller;
        // In a container the path may be that of the host, while only the container's own group is mounted, at the top. A
        // folder that does not exist sets no limit.
        std::filesystem::path inside = std::filesystem::path(line.substr(second + 1)).relative_path();
        for (;; inside = inside.parent_path()) {
            groups.push_back({top / inside, unified});
            if (inside.empty()) break;
        }
    }
    return groups;
}

}  // namespace lorry::kernels
