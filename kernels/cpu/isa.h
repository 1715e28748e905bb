// Chooses the instruction set and the kernels for this machine. Called by make_cpu_backend, tests and benchmarks.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/backend.h"
#include "kernels/cpu/kernels.h"

namespace lorry::kernels::cpu {

// A kind of chip, as the processor reports it.
struct Chip {
    std::string vendor;
    unsigned family = 0;
    unsigned model = 0;
};
Chip this_chip();

// The narrowest first.
inline constexpr std::array all_isas = {CpuIsa::scalar, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512bf16, CpuIsa::avx512amx};

// Whether this processor and its operating system run code made for `isa`.
bool supported(CpuIsa isa);

const char* name_of(CpuIsa isa);
// nullopt: no instruction set has this name.
std::optional<CpuIsa> isa_named(std::string_view name);

// The table's choice for a chip, whether or not this process can use it.
std::optional<CpuIsa> measured_isa(const Chip& chip);

// The table's choice for this chip. A chip that is not in the table gets the widest instruction set that it supports, without bfloat16
// products.
CpuIsa choose_isa();

// `wanted`, or choose_isa() if nullopt. Throws std::runtime_error if the processor does not support it.
CpuIsa usable_isa(std::optional<CpuIsa> wanted);

const Kernels& kernels_of(CpuIsa isa);

// The kernels for weights of this format (weights: the format of those that are not quantized): the fastest ones that `isa` allows and the
// processor supports. Null: the weights are widened to float32. All int8 kernels give the same results; so do all int4 kernels.
const DotKernels* dot_kernels_of(CpuIsa isa, Quantization quantization, Format weights);
const DotKernels& int4_kernels_of(CpuIsa isa);
const DotKernels& int8_kernels_of(CpuIsa isa);
// The fastest attention over an int8 cache, likewise. Softmax weights may differ in their last bits between kernels, so the number of lanes
// is part of the fingerprint.
const Int8AttentionKernel& int8_attention_of(CpuIsa isa);

// The kind of chip, such as "AuthenticAMD-25-1" (vendor, family, model); part of the fingerprint.
std::string chip_name();

}  // namespace lorry::kernels::cpu
