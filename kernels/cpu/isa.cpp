// Reads the chip's name and abilities and looks them up in the table of measured chips; see isa.h.
#include "kernels/cpu/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "schema/check.h"

namespace lorry::kernels::cpu {

namespace {

// Chips on which `lorry bench tune` measured the choice, and others with the same core. For a chip without a row it prints the row to add.
// The first row that matches is used. Models are a range, because vendors number the variants of one core.
struct Row {
    const char* vendor;
    unsigned family;
    unsigned model_first;
    unsigned model_last;
    CpuIsa isa;
};
constexpr std::array rows = {
    Row{"AuthenticAMD", 0x19, 0x01, 0x01, CpuIsa::avx2},        // Zen 3 servers: no AVX-512
    Row{"AuthenticAMD", 0x19, 0x10, 0x1F, CpuIsa::avx512bf16},  // Zen 4 servers: bfloat16 dot does twice what fp32 does
    Row{"AuthenticAMD", 0x19, 0x60, 0x7F, CpuIsa::avx512bf16},  // Zen 4 desktops and notebooks
    Row{"AuthenticAMD", 0x19, 0xA0, 0xAF, CpuIsa::avx512bf16},  // Zen 4c servers
    Row{"GenuineIntel", 0x06, 0xCF, 0xCF, CpuIsa::avx512},      // Emerald Rapids: bfloat16 dot does half of what fp32 does
};

// Whether the processor has AMX for bfloat16 and int8, and the kernel permits this process to use the tile registers. Requests the
// permission.
bool may_use_tiles() {
    constexpr unsigned amx_bf16 = 1U << 22;
    constexpr unsigned amx_tile = 1U << 24;
    constexpr unsigned amx_int8 = 1U << 25;
    constexpr unsigned all = amx_bf16 | amx_tile | amx_int8;
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & all) != all) return false;
    constexpr int request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM, which older headers lack
    constexpr int tile_data = 18;               // XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

}  // namespace

Chip this_chip() {
    unsigned eax = 0;
    std::array<unsigned, 3> name{};
    Chip chip;
    if (__get_cpuid(0, &eax, &name[0], &name[2], &name[1]) == 0) return chip;
    chip.vendor.assign(reinterpret_cast<const char*>(name.data()), sizeof name);
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return chip;
    // Family and model have an extended part, by both vendors' manuals.
    const unsigned family = (eax >> 8) & 0xFU;
    chip.family = family == 0xFU ? family + ((eax >> 20) & 0xFFU) : family;
    chip.model = (eax >> 4) & 0xFU;
    if (family == 0xFU || family == 6U) chip.model |= ((eax >> 16) & 0xFU) << 4;
    return chip;
}

bool supported(CpuIsa isa) {
    __builtin_cpu_init();
    switch (isa) {
        case CpuIsa::scalar: return true;
        case CpuIsa::avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        case CpuIsa::avx512:
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512dq");
        case CpuIsa::avx512bf16: return supported(CpuIsa::avx512) && __builtin_cpu_supports("avx512bf16");
        case CpuIsa::avx512amx: return supported(CpuIsa::avx512) && __builtin_cpu_supports("avx512vnni") && may_use_tiles();
    }
    return false;
}

const char* name_of(CpuIsa isa) {
    switch (isa) {
        case CpuIsa::scalar: return "scalar";
        case CpuIsa::avx2: return "avx2";
        case CpuIsa::avx512: return "avx512";
        case CpuIsa::avx512bf16: return "avx512bf16";
        case CpuIsa::avx512amx: return "avx512amx";
    }
    return "";
}

std::optional<CpuIsa> isa_named(std::string_view name) {
    for (const CpuIsa isa : all_isas) {
        if (name == name_of(isa)) return isa;
    }
    return std::nullopt;
}

std::optional<CpuIsa> measured_isa(const Chip& chip) {
    const auto* const row = std::ranges::find_if(rows, [&](const Row& one) {
        return chip.vendor == one.vendor && chip.family == one.family && chip.model >= one.model_first && chip.model <= one.model_last;
    });
    if (row == rows.end()) return std::nullopt;
    return row->isa;
}

CpuIsa choose_isa() {
    const std::optional<CpuIsa> measured = measured_isa(this_chip());
    // A hypervisor may hide instructions that the chip has.
    if (measured && supported(*measured)) return *measured;
    if (supported(CpuIsa::avx512)) return CpuIsa::avx512;
    return supported(CpuIsa::avx2) ? CpuIsa::avx2 : CpuIsa::scalar;
}

CpuIsa usable_isa(std::optional<CpuIsa> wanted) {
    if (!wanted) return choose_isa();
    if (supported(*wanted)) return *wanted;
    throw std::runtime_error(std::string("this processor does not support ") + name_of(*wanted) + ": leave the choice to the program");
}

const Kernels& kernels_of(CpuIsa isa) {
    switch (isa) {
        case CpuIsa::scalar: return scalar_kernels();
        case CpuIsa::avx2: return avx2_kernels();
        case CpuIsa::avx512: return avx512_kernels();
        case CpuIsa::avx512bf16: return avx512bf16_kernels();
        case CpuIsa::avx512amx: return avx512amx_kernels();
    }
    return scalar_kernels();
}

namespace {

// Instruction sets that have kernels of their own for int8.
enum class Int8Isa : std::uint8_t { scalar, avx2, avx512vnni, avx512amx };
Int8Isa int8_isa_of(CpuIsa isa) {
    switch (isa) {
        case CpuIsa::scalar: break;
        case CpuIsa::avx2: return Int8Isa::avx2;
        case CpuIsa::avx512:
        case CpuIsa::avx512bf16: return __builtin_cpu_supports("avx512vnni") ? Int8Isa::avx512vnni : Int8Isa::avx2;
        case CpuIsa::avx512amx: return Int8Isa::avx512amx;
    }
    return Int8Isa::scalar;
}

}  // namespace

const DotKernels& int4_kernels_of(CpuIsa isa) {
    switch (int8_isa_of(isa)) {
        case Int8Isa::scalar: break;
        case Int8Isa::avx2: return avx2_int4_kernels();
        case Int8Isa::avx512vnni: return avx512vnni_int4_kernels();
        case Int8Isa::avx512amx: return avx512amx_int4_kernels();
    }
    return scalar_int4_kernels();
}

const DotKernels& int8_kernels_of(CpuIsa isa) { return *int4_kernels_of(isa).unpacked; }

const DotKernels* dot_kernels_of(CpuIsa isa, Quantization quantization, Format weights) {
    switch (quantization) {
        case Quantization::none: return weights == Format::bfloat16 ? kernels_of(isa).bfloat16_dot : nullptr;
        case Quantization::int8: return &int8_kernels_of(isa);
        case Quantization::int4: return &int4_kernels_of(isa);
        case Quantization::fp8: break;
    }
    CHECK(false, *obstacle(quantization, DeviceKind::cpu));
}

const Int8AttentionKernel& int8_attention_of(CpuIsa isa) {
    switch (int8_isa_of(isa)) {
        case Int8Isa::scalar: break;
        case Int8Isa::avx2: return avx2_int8_attention();
        case Int8Isa::avx512vnni:
        case Int8Isa::avx512amx: return avx512vnni_int8_attention();
    }
    return scalar_int8_attention();
}

std::string chip_name() {
    const Chip chip = this_chip();
    return chip.vendor + "-" + std::to_string(chip.family) + "-" + std::to_string(chip.model);
}

}  // namespace lorry::kernels::cpu
