// Finds this process's Linux control groups (containers), of version 1 and 2. Called by processors.cpp and ops/machine.cpp.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace lorry::kernels {

struct ControlGroup {
    std::filesystem::path folder;
    bool unified = false;  // version 2, whose files have other names
};

// The groups of a controller ("memory", "cpu") that this process is in, and all groups above them. root: of the file system; tests pass
// their own.
std::vector<ControlGroup> control_groups(std::string_view controller, const std::filesystem::path& root = "/");

}  // namespace lorry::kernels
