// The control groups of Linux (containers) that this process is in, of both generations. Called by processors.cpp and ops/machine.cpp.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace lorry::kernels {

struct ControlGroup {
    std::filesystem::path folder;
    bool unified = false;  // of the second generation, whose files have other names
};

// The groups of a controller ("memory", "cpu") that this process is in, and all above them. `root`: of the
// file system; tests have their own.
std::vector<ControlGroup> control_groups(std::string_view controller, const std::filesystem::path& root = "/");

}  // namespace lorry::kernels
