// The error for an NVIDIA driver that is too old.
#include <gtest/gtest.h>

#include "kernels/cuda/devices.h"

namespace lorry::kernels::cuda {
namespace {

TEST(Driver, ThatIsTooOldIsNamedWithTheOneThatIsNeeded) {
    EXPECT_EQ(
        driver_too_old({.driver = 12040, .runtime = 13010, .module = "550.54.15"}),
        "the NVIDIA driver 550.54.15 is for CUDA 12.4, and this program needs one for CUDA 13.0 or later, which is driver 580.65.06 or "
        "later: update the driver");
    EXPECT_EQ(driver_too_old({.driver = 11080, .runtime = 12040, .module = {}}),
              "the NVIDIA driver is for CUDA 11.8, and this program needs one for CUDA 12.0 or later, which is driver 525.60.13 or later: "
              "update the driver");
    EXPECT_EQ(driver_too_old({.driver = 13000, .runtime = 14010, .module = {}}),
              "the NVIDIA driver is for CUDA 13.0, and this program needs one for CUDA 14.0 or later: update the driver");
}

TEST(Driver, ItsVersionIsReadFromWhatTheModuleSays) {
    EXPECT_EQ(
        module_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12.2.0"),
        "550.54.15");
    EXPECT_EQ(module_version("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)\n"),
              "580.65.06");
    EXPECT_EQ(module_version(""), std::nullopt);
    EXPECT_EQ(module_version("NVRM version: unknown"), std::nullopt);
}

}  // namespace
}  // namespace lorry::kernels::cuda
