// int8 and int4 sums, and attention over an int8 cache, with AVX-512 VNNI: four products and their sum in one instruction. Called by
// isa.cpp.
// g++ 12 mistakes the undefined operand inside its own AVX-512 intrinsics for an uninitialized variable.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "kernels/cpu/simd/int8_attention.h"
#include "kernels/cpu/simd/int8_dot.h"
#include "kernels/cpu/simd/isa_avx512vnni.h"

namespace lorry::kernels::cpu {

const DotKernels& avx512vnni_int4_kernels() { return DotMatmul<Int4Dot<Int8Avx512>>::table; }

const Int8AttentionKernel& avx512vnni_int8_attention() { return Int8Attention<Int8Avx512>::table; }

}  // namespace lorry::kernels::cpu
