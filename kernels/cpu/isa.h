// Which instruction set the kernels use on this machine; asked by make_cpu_backend, the tests and benchmarks.
#pragma once

#include <optional>
#include <string>

#include "kernels/backend.h"
#include "kernels/cpu/kernels.h"

namespace lorry::kernels::cpu {

// A kind of chip, as the processor names it.
struct Chip {
    std::string vendor;
    unsigned family = 0;
    unsigned model = 0;
};
Chip this_chip();

// Whether this processor and its operating system run code made for `isa`.
bool supported(CpuIsa isa);

const char* name_of(CpuIsa isa);

// What the table says of a chip, whether or not the system lets this process use it.
std::optional<CpuIsa> measured_isa(const Chip& chip);

// The table's choice for this chip; a chip that is not in the table gets the widest instruction set it supports, without bfloat16 products.
CpuIsa choose_isa();

// What was asked for, else the table's choice. Throws std::runtime_error for one that the processor does not support.
CpuIsa usable_isa(std::optional<CpuIsa> wanted);

const Kernels& kernels_of(CpuIsa isa);

// What multiplies weights that are stored so (`weights`: as what, if they are not quantized): the fastest kernels among those that `isa`
// allows and the processor supports. Null: the weights are widened to float32. All int8 kernels give the same results, as do all of int4.
const DotKernels* dot_kernels_of(CpuIsa isa, Quantization quantization, Format weights);
const DotKernels& int4_kernels_of(CpuIsa isa);
const DotKernels& int8_kernels_of(CpuIsa isa);
// Likewise, but weights of a softmax may differ in their last bits, as in any other attention: its lanes are part of the fingerprint.
const Int8AttentionKernel& int8_attention_of(CpuIsa isa);

// The kind of chip, as "AuthenticAMD-25-1" (vendor, family, model); part of the fingerprint.
std::string chip_name();

}  // namespace lorry::kernels::cpu
