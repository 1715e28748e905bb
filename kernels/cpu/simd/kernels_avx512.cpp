// The kernels for AVX-512 (F, BW, VL, DQ): 16 lanes. Compiled with those flags; isa.cpp calls them only if the processor supports them.
// g++ 12 mistakes the undefined operand inside its own AVX-512 intrinsics for an uninitialized variable.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "kernels/cpu/simd/isa_avx512.h"
#include "kernels/cpu/simd/table.h"

namespace lorry::kernels::cpu {

namespace {

constexpr Kernels table = table_of<Avx512>("avx512");

}  // namespace

const Kernels& avx512_kernels() { return table; }

}  // namespace lorry::kernels::cpu
