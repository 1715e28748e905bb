// Converts the Backend's arguments to the kernels', and checks that these kernels take their format and size. Used by
// the launchers in kernels/cuda.
#pragma once

#include "kernels/cuda/kernels.h"
#include "kernels/tensor.h"

namespace lorry::kernels::cuda {

View view_of(const Matrix& matrix);  // float32, bfloat16 or fp8_rows
int int_of(std::int64_t x);          // within 32 bits

}  // namespace lorry::kernels::cuda
