// Which GPU this process uses, and why there may be none.
#pragma once

#include <optional>
#include <string>

#include "kernels/cuda/matmul_table.h"

namespace lorry::kernels::cuda {

// What stands in the way of using a GPU, for people; nullopt when there is one.
std::optional<std::string> obstacle();

// Makes the first GPU this thread's device; its name. Throws std::runtime_error with the obstacle.
std::string choose_device();

// Of the device that was chosen.
MatmulChip chip_of_device();

}  // namespace lorry::kernels::cuda
