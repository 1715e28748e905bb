// What the rules choose for processors of several kinds, and that this machine can run what they choose for it.
#include "kernels/cpu/isa.h"

#include <gtest/gtest.h>

#include <memory>

namespace lorry::kernels::cpu {
namespace {

const Chip zen3 = {.vendor = "AuthenticAMD", .family = 0x19, .model = 0x01};
const Chip zen4 = {.vendor = "AuthenticAMD", .family = 0x19, .model = 0x11};
const Chip zen5 = {.vendor = "AuthenticAMD", .family = 0x1A, .model = 0x02};
const Chip skylake = {.vendor = "GenuineIntel", .family = 6, .model = 0x55};  // Cascade Lake and Cooper Lake have the same model
const Chip ice_lake = {.vendor = "GenuineIntel", .family = 6, .model = 0x6A};
const Chip alder_lake = {.vendor = "GenuineIntel", .family = 6, .model = 0x97};
const Chip emerald_rapids = {.vendor = "GenuineIntel", .family = 6, .model = 0xCF};
const Chip hypervisor = {.vendor = "GenuineIntel", .family = 6, .model = 167};  // a desktop processor that has no AMX
const Chip unknown = {.vendor = "Somebody Else", .family = 1, .model = 1};

constexpr Features nothing = {};
constexpr Features avx2 = {.avx2 = true};
constexpr Features avx512 = {.avx2 = true, .avx512 = true};
constexpr Features vnni = {.avx2 = true, .avx512 = true, .avx512_vnni = true};
constexpr Features bf16 = {.avx2 = true, .avx512 = true, .avx512_vnni = true, .avx512_bf16 = true};
constexpr Features tiles = {.avx2 = true, .avx512 = true, .avx512_vnni = true, .avx512_bf16 = true, .amx = true, .amx_permitted = true};
constexpr Features tiles_refused = {.avx2 = true, .avx512 = true, .avx512_vnni = true, .avx512_bf16 = true, .amx = true};
constexpr Features tiles_without_vnni = {.avx2 = true, .avx512 = true, .avx512_bf16 = true, .amx = true, .amx_permitted = true};
constexpr Features tiles_without_avx512 = {.avx2 = true, .avx512_vnni = true, .avx512_bf16 = true, .amx = true, .amx_permitted = true};

constexpr const char* has_tiles = "the processor has matrix tiles (AMX)";
constexpr const char* refuses_tiles = "the operating system does not let this process use the processor's matrix tiles (AMX)";
constexpr const char* amd_is_fast = "AMD's processors multiply bfloat16 at twice the rate of float32";
constexpr const char* intel_is_slow = "Intel's processors multiply bfloat16 without matrix tiles (AMX) at half the rate of float32";
constexpr const char* not_measured = "the bfloat16 products of this processor's vendor have not been measured";
constexpr const char* widest_avx512 = "AVX-512 is the widest instruction set that the processor offers";
constexpr const char* widest_avx2 = "AVX2 is the widest instruction set that the processor offers";
constexpr const char* no_avx2 = "the processor does not offer AVX2 with FMA";

struct Case {
    const char* name;
    Features features;
    Chip chip;
    CpuIsa isa;
    Int8Isa int8;
    const char* reason;
};
const std::array cases = {
    Case{"Intel with AMX", tiles, emerald_rapids, CpuIsa::avx512amx, Int8Isa::avx512amx, has_tiles},
    Case{"AMX under another model's name", tiles, hypervisor, CpuIsa::avx512amx, Int8Isa::avx512amx, has_tiles},
    Case{"AMX of another vendor", tiles, unknown, CpuIsa::avx512amx, Int8Isa::avx512amx, has_tiles},
    Case{"AMX hidden", bf16, emerald_rapids, CpuIsa::avx512, Int8Isa::avx512vnni, intel_is_slow},
    Case{"AMX refused", tiles_refused, emerald_rapids, CpuIsa::avx512, Int8Isa::avx512vnni, refuses_tiles},
    Case{"AMX with VNNI hidden", tiles_without_vnni, emerald_rapids, CpuIsa::avx512, Int8Isa::avx2, intel_is_slow},
    Case{"AMX with AVX-512 hidden", tiles_without_avx512, emerald_rapids, CpuIsa::avx2, Int8Isa::avx2, widest_avx2},
    Case{"Zen 3", avx2, zen3, CpuIsa::avx2, Int8Isa::avx2, widest_avx2},
    Case{"Zen 4", bf16, zen4, CpuIsa::avx512bf16, Int8Isa::avx512vnni, amd_is_fast},
    Case{"Zen 4 with bfloat16 products hidden", vnni, zen4, CpuIsa::avx512, Int8Isa::avx512vnni, widest_avx512},
    Case{"Zen 4 with AVX-512 hidden", avx2, zen4, CpuIsa::avx2, Int8Isa::avx2, widest_avx2},
    Case{"Zen 5", bf16, zen5, CpuIsa::avx512bf16, Int8Isa::avx512vnni, amd_is_fast},
    Case{"Skylake", avx512, skylake, CpuIsa::avx512, Int8Isa::avx2, widest_avx512},
    Case{"Cooper Lake", bf16, skylake, CpuIsa::avx512, Int8Isa::avx512vnni, intel_is_slow},
    Case{"Ice Lake", vnni, ice_lake, CpuIsa::avx512, Int8Isa::avx512vnni, widest_avx512},
    Case{"Alder Lake", avx2, alder_lake, CpuIsa::avx2, Int8Isa::avx2, widest_avx2},
    Case{"bfloat16 products of another vendor", bf16, unknown, CpuIsa::avx512, Int8Isa::avx512vnni, not_measured},
    Case{"AVX-512 of another vendor", avx512, unknown, CpuIsa::avx512, Int8Isa::avx2, widest_avx512},
    Case{"a processor with nothing of this", nothing, unknown, CpuIsa::scalar, Int8Isa::scalar, no_avx2},
};

// Pins: a table by model did not know the chip that a hypervisor named, and a processor with tiles ran at a sixteenth of its rate.
TEST(Isa, EachSetOfFeaturesHasItsChoiceAndItsReason) {
    for (const Case& one : cases) {
        const IsaChoice choice = choose_isa(one.features, one.chip);
        EXPECT_STREQ(name_of(choice.isa), name_of(one.isa)) << one.name;
        EXPECT_STREQ(choice.reason, one.reason) << one.name;
        EXPECT_EQ(int8_isa_of(choice.isa, one.features), one.int8) << one.name;
    }
}

// Pins: choosing an instruction set that a hypervisor hides, which would end in an illegal instruction.
TEST(Isa, NoChoiceNeedsWhatIsNotOffered) {
    constexpr unsigned feature_count = 6;
    for (unsigned bits = 0; bits < 1U << feature_count; ++bits) {
        const auto has = [&](unsigned bit) { return (bits >> bit & 1U) != 0; };
        const Features features = {
            .avx2 = has(0), .avx512 = has(1), .avx512_vnni = has(2), .avx512_bf16 = has(3), .amx = has(4), .amx_permitted = has(5)};
        for (const Chip& chip : {zen4, emerald_rapids, unknown}) {
            EXPECT_TRUE(supported(choose_isa(features, chip).isa, features)) << chip.vendor << ", features " << bits;
        }
    }
}

TEST(Isa, ThisMachineGetsWhatItsFeaturesSayAndCanRunIt) {
    const IsaChoice choice = choose_isa();
    EXPECT_TRUE(supported(choice.isa));
    EXPECT_EQ(choice.isa, choose_isa(this_features(), this_chip()).isa);
    EXPECT_EQ(usable_isa({}), choice.isa);
}

// Pins: results of two instruction sets could not be told apart.
TEST(Isa, TheFingerprintNamesTheChoiceWhetherARuleOrTheUserMadeIt) {
    const auto fingerprint = [](std::optional<CpuIsa> isa) {
        return make_cpu_backend({.threads = 1, .isa = isa, .storage = {.weights = Format::bfloat16}})->info().fingerprint;
    };
    const CpuIsa chosen = choose_isa().isa;
    EXPECT_EQ(fingerprint({}), fingerprint(chosen));
    for (const CpuIsa isa : all_isas) {
        if (!supported(isa)) continue;
        EXPECT_NE(fingerprint(isa).find(std::string("-") + name_of(isa) + "-"), std::string::npos) << fingerprint(isa);
        EXPECT_EQ(fingerprint(isa) == fingerprint({}), isa == chosen) << name_of(isa);
    }
}

}  // namespace
}  // namespace lorry::kernels::cpu
