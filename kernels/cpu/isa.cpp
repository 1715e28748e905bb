// Reads what the processor is and offers, and the rules that choose by it; see isa.h.
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

bool is_amd(const Chip& chip) { return chip.vendor == "AuthenticAMD"; }
bool is_intel(const Chip& chip) { return chip.vendor == "GenuineIntel"; }

// The first rule that applies, and whose instruction set is supported, chooses. Rules use the CPU's features and vendor.
// They ignore its model, because hypervisors hide and invent models. If `lorry bench tune` shows that a rule is wrong for one model, a rule
// for that model goes before it.
struct Rule {
    CpuIsa isa;
    bool (*applies)(const Features& features, const Chip& chip);
    const char* reason;
};
constexpr auto always = [](const Features&, const Chip&) { return true; };
constexpr std::array rules = {
    // Intel Xeon with AMX, one thread: tiles reach 15 times float32's rate in bfloat16, and 31 times in int8.
    Rule{CpuIsa::avx512amx, always, "the processor has matrix tiles (AMX)"},
    // Zen 4: bfloat16 products reach twice float32's rate.
    Rule{CpuIsa::avx512bf16, [](const Features&, const Chip& chip) { return is_amd(chip); },
         "AMD's processors multiply bfloat16 at twice the rate of float32"},
    // Intel Xeon with AMX but no permission. Same choice as the next rule; listed first because an operator can grant the permission.
    Rule{CpuIsa::avx512, [](const Features& features, const Chip&) { return features.amx && !features.amx_permitted; },
         "the operating system does not let this process use the processor's matrix tiles (AMX)"},
    // Emerald Rapids without AMX: bfloat16 products reach half of float32's rate.
    Rule{CpuIsa::avx512, [](const Features& features, const Chip& chip) { return features.avx512_bf16 && is_intel(chip); },
         "Intel's processors multiply bfloat16 without matrix tiles (AMX) at half the rate of float32"},
    // The two vendors above differ by a factor of four. Float32 is the safe choice for others.
    Rule{CpuIsa::avx512, [](const Features& features, const Chip&) { return features.avx512_bf16; },
         "the bfloat16 products of this processor's vendor have not been measured"},
    // Zen 4: avx512 is 1.25 times as fast as avx2, the geometric mean over all lines of `lorry bench tune`.
    Rule{CpuIsa::avx512, always, "AVX-512 is the widest instruction set that the processor offers"},
    // Zen 3 has nothing wider.
    Rule{CpuIsa::avx2, always, "AVX2 is the widest instruction set that the processor offers"},
    Rule{CpuIsa::scalar, always, "the processor does not offer AVX2 with FMA"},
};

// Whether the processor has AMX for bfloat16 and int8.
bool has_tiles() {
    constexpr unsigned amx_bf16 = 1U << 22;
    constexpr unsigned amx_tile = 1U << 24;
    constexpr unsigned amx_int8 = 1U << 25;
    constexpr unsigned all = amx_bf16 | amx_tile | amx_int8;
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & all) == all;
}

// Requests permission for this process to use the tiles' registers. False: the operating system refuses.
bool request_tiles() {
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

Features this_features() {
    __builtin_cpu_init();
    const bool amx = has_tiles();
    return {.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
            .avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq"),
            .avx512_vnni = __builtin_cpu_supports("avx512vnni") != 0,
            .avx512_bf16 = __builtin_cpu_supports("avx512bf16") != 0,
            .amx = amx,
            .amx_permitted = amx && request_tiles()};
}

bool supported(CpuIsa isa, const Features& features) {
    switch (isa) {
        case CpuIsa::scalar: return true;
        case CpuIsa::avx2: return features.avx2;
        case CpuIsa::avx512: return features.avx512;
        case CpuIsa::avx512bf16: return features.avx512 && features.avx512_bf16;
        case CpuIsa::avx512amx:
            return features.avx512 && features.avx512_vnni && features.avx512_bf16 && features.amx && features.amx_permitted;
    }
    return false;
}

bool supported(CpuIsa isa) { return supported(isa, this_features()); }

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

IsaChoice choose_isa(const Features& features, const Chip& chip) {
    const auto* const rule =
        std::ranges::find_if(rules, [&](const Rule& one) { return supported(one.isa, features) && one.applies(features, chip); });
    CHECK(rule != rules.end(), "the last rule always applies");
    return {.isa = rule->isa, .reason = rule->reason};
}

IsaChoice choose_isa() { return choose_isa(this_features(), this_chip()); }

CpuIsa usable_isa(std::optional<CpuIsa> wanted) {
    if (!wanted) return choose_isa().isa;
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

Int8Isa int8_isa_of(CpuIsa isa, const Features& features) {
    switch (isa) {
        case CpuIsa::scalar: break;
        case CpuIsa::avx2: return Int8Isa::avx2;
        case CpuIsa::avx512:
        case CpuIsa::avx512bf16: return features.avx512_vnni ? Int8Isa::avx512vnni : Int8Isa::avx2;
        case CpuIsa::avx512amx: return Int8Isa::avx512amx;
    }
    return Int8Isa::scalar;
}

const DotKernels& int4_kernels_of(CpuIsa isa) {
    switch (int8_isa_of(isa, this_features())) {
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
    switch (int8_isa_of(isa, this_features())) {
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
