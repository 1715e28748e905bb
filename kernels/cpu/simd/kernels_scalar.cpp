// The kernels for any machine: the strict reference that the faster ones agree with. A multiply-add is two roundings here, and the four
// lanes are whatever the compiler makes of them on the baseline.
#include "kernels/cpu/simd/isa_scalar.h"
#include "kernels/cpu/simd/table.h"

namespace lorry::kernels::cpu {

namespace {

constexpr Kernels table = table_of<Scalar>("scalar");

}  // namespace

const Kernels& scalar_kernels() { return table; }

}  // namespace lorry::kernels::cpu
