// The kernels for AVX2, FMA and F16C: 8 lanes. Compiled with those flags; isa.cpp calls them only if the processor supports them.
#include "kernels/cpu/simd/isa_avx2.h"
#include "kernels/cpu/simd/table.h"

namespace lorry::kernels::cpu {

namespace {

constexpr Kernels table = table_of<Avx2>("avx2");

}  // namespace

const Kernels& avx2_kernels() { return table; }

}  // namespace lorry::kernels::cpu
