// Which GPU this process uses, and why there may be none.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernels/cuda/cublaslt/matmul_table.h"

namespace lorry::kernels::cuda {

// What stands in the way of using a GPU, for people; nullopt when there is one.
std::optional<std::string> obstacle();

// What obstacle() says of a driver that cudart refuses as too old. A driver serves every cudart of its own major version.
struct DriverVersions {
    int driver = 0;                     // the newest CUDA that it is for: 12040
    int runtime = 0;                    // the CUDA that cudart is of
    std::optional<std::string> module;  // the driver's own version, "550.54.15", where the system says it
};
std::string driver_too_old(const DriverVersions& versions);
// In what the kernel's module says of itself (/proc/driver/nvidia/version).
std::optional<std::string> module_version(std::string_view text);

// Makes the first GPU this thread's device; its name. Throws std::runtime_error with the obstacle.
std::string choose_device();

// Of the device that was chosen.
MatmulChip chip_of_device();

}  // namespace lorry::kernels::cuda
