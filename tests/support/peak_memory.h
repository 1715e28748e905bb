// How much memory a test took at most. Used by tests of what strangers write, of large batches and of loading.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "schema/check.h"

namespace lorry::tests {

// The most memory that the process has had, pages of mapped files included, in KiB.
inline std::int64_t peak_memory() {
    std::ifstream status("/proc/self/status");
    std::string word;
    while (status >> word && word != "VmHWM:") {
    }
    std::int64_t kibibytes = 0;
    status >> kibibytes;
    CHECK(!status.fail(), "/proc/self/status has VmHWM");
    return kibibytes;
}

// From now on, the most is counted from what the process has now.
inline void begin_peak_memory() {
    std::ofstream file("/proc/self/clear_refs");
    file << "5";
    CHECK(file.flush().good(), "/proc/self/clear_refs can be written");
}

}  // namespace lorry::tests
