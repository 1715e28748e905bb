// From the Backend's arguments to the kernels': checks that a size or a matrix is one that the kernels take.
#pragma once

#include "kernels/cuda/kernels.h"
#include "kernels/tensor.h"

namespace lorry::kernels::cuda {

View view_of(const Matrix& matrix);          // float32, bfloat16 or fp8_rows
View float32_view_of(const Matrix& matrix);  // float32
int int_of(std::int64_t x);                  // within 32 bits

}  // namespace lorry::kernels::cuda
