// Chooses the GPU that this process uses, or reports why none can be used. Called by make_cuda_backend, cuda_obstacle and the tuner.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernels/cuda/cublaslt/matmul_table.h"

namespace lorry::kernels::cuda {

// Why no GPU can be used, for people; nullopt if one can.
std::optional<std::string> obstacle();

// obstacle()'s text for a driver that cudart rejects as too old. A driver supports every cudart of its own major version.
struct DriverVersions {
    int driver = 0;                     // the newest CUDA that it supports: 12040
    int runtime = 0;                    // cudart's CUDA
    std::optional<std::string> module;  // the driver's own version, "550.54.15", if the system reports it
};
std::string driver_too_old(const DriverVersions& versions);
// The driver's version in the text of /proc/driver/nvidia/version.
std::optional<std::string> module_version(std::string_view text);

// Makes the first GPU this thread's device and returns its name. Throws std::runtime_error with the obstacle.
std::string choose_device();

// The chip of the chosen device.
MatmulChip chip_of_device();

}  // namespace lorry::kernels::cuda
