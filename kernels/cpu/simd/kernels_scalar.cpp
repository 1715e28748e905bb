// The kernels for any machine: the strict reference that the faster ones are tested against. Here a multiply-add rounds twice, and the
// compiler implements the four lanes with baseline instructions. Called by isa.cpp.
#include "kernels/cpu/simd/isa_scalar.h"
#include "kernels/cpu/simd/table.h"

namespace lorry::kernels::cpu {

namespace {

constexpr Kernels table = table_of<Scalar>("scalar");

}  // namespace

const Kernels& scalar_kernels() { return table; }

}  // namespace lorry::kernels::cpu
