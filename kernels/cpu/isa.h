// Chooses the instruction set and the kernels for this machine. Called by make_cpu_backend, tests and benchmarks.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/backend.h"
#include "kernels/cpu/kernels.h"

namespace lorry::kernels::cpu {

// A kind of chip, as the processor reports it. A hypervisor may report another one.
struct Chip {
    std::string vendor;
    unsigned family = 0;
    unsigned model = 0;
};
Chip this_chip();

// The instructions that the processor and its operating system offer to this process, as far as kernels use them.
struct Features {
    bool avx2 = false;    // with FMA
    bool avx512 = false;  // F, BW, VL and DQ
    bool avx512_vnni = false;
    bool avx512_bf16 = false;
    bool amx = false;            // tiles with products of bfloat16 and of int8
    bool amx_permitted = false;  // the operating system lets this process use the tiles
};
// Requests permission to use the tiles, if the processor has them.
Features this_features();

// The narrowest first.
inline constexpr std::array all_isas = {CpuIsa::scalar, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512bf16, CpuIsa::avx512amx};

// Whether code made for `isa` runs with these features, and whether it runs here.
bool supported(CpuIsa isa, const Features& features);
bool supported(CpuIsa isa);

const char* name_of(CpuIsa isa);
// nullopt: no instruction set has this name.
std::optional<CpuIsa> isa_named(std::string_view name);

struct IsaChoice {
    CpuIsa isa = CpuIsa::scalar;
    const char* reason = "";  // why the rule chose it, for people: completes a sentence after "because"
};
// The choice of the rules in isa.cpp. It depends on the arguments only, so answers do not change from one start to the next.
IsaChoice choose_isa(const Features& features, const Chip& chip);
// The choice for this processor.
IsaChoice choose_isa();

// `wanted`, or the choice for this processor if nullopt. Throws std::runtime_error if the processor does not support it.
CpuIsa usable_isa(std::optional<CpuIsa> wanted);

const Kernels& kernels_of(CpuIsa isa);

// Instruction sets that have kernels of their own for int8 and int4. All give the same sums.
enum class Int8Isa : std::uint8_t { scalar, avx2, avx512vnni, avx512amx };
// The fastest one that `isa` allows and the features offer.
Int8Isa int8_isa_of(CpuIsa isa, const Features& features);

// The kernels for weights of this format (weights: the format of those that are not quantized) on this processor. Null: the weights are
// widened to float32. All int8 kernels give the same results; so do all int4 kernels.
const DotKernels* dot_kernels_of(CpuIsa isa, Quantization quantization, Format weights);
const DotKernels& int4_kernels_of(CpuIsa isa);
const DotKernels& int8_kernels_of(CpuIsa isa);
// The fastest attention over an int8 cache, likewise. Softmax weights may differ in their last bits between kernels, so the number of lanes
// is part of the fingerprint.
const Int8AttentionKernel& int8_attention_of(CpuIsa isa);

// The kind of chip, such as "AuthenticAMD-25-1" (vendor, family, model); part of the fingerprint.
std::string chip_name();

}  // namespace lorry::kernels::cpu
