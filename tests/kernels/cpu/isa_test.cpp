// How the table of measured chips is read; not its contents.
#include "kernels/cpu/isa.h"

#include <gtest/gtest.h>

namespace lorry::kernels::cpu {
namespace {

TEST(Isa, ARowHoldsForAllModelsOfItsRangeAndForNoOtherChip) {
    constexpr unsigned zen4_family = 0x19;
    EXPECT_EQ(measured_isa({.vendor = "AuthenticAMD", .family = zen4_family, .model = 0x10}), CpuIsa::avx512bf16);
    EXPECT_EQ(measured_isa({.vendor = "AuthenticAMD", .family = zen4_family, .model = 0x1F}), CpuIsa::avx512bf16);
    EXPECT_EQ(measured_isa({.vendor = "AuthenticAMD", .family = zen4_family, .model = 0x20}), std::nullopt);
    EXPECT_EQ(measured_isa({.vendor = "AuthenticAMD", .family = zen4_family + 1, .model = 0x10}), std::nullopt);
    EXPECT_EQ(measured_isa({.vendor = "GenuineIntel", .family = zen4_family, .model = 0x10}), std::nullopt);
}

// Pins: choosing an instruction set that a hypervisor hides, which would end in an illegal instruction.
TEST(Isa, TheChoiceIsTheTablesWhereThisMachineCanRunIt) {
    EXPECT_TRUE(supported(choose_isa()));
    const std::optional<CpuIsa> measured = measured_isa(this_chip());
    if (measured && supported(*measured)) {
        EXPECT_EQ(choose_isa(), *measured);
    }
}

}  // namespace
}  // namespace lorry::kernels::cpu
