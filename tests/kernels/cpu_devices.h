// The devices of devices.h that are CPUs, for ops that no GPU has.
#pragma once

#include <vector>

#include "tests/kernels/devices.h"

namespace lorry::kernels::testing {

inline std::vector<Device> cpu_devices() {
    std::vector<Device> all = devices();
    std::erase_if(all, [](const Device& device) { return device.is_gpu(); });
    return all;
}

}  // namespace lorry::kernels::testing
