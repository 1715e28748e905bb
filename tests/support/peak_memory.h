// How much memory a test took at most. Used by tests of what strangers write.
#pragma once

#include <sys/resource.h>

namespace lorry::tests {

// The most memory that the process has had, in KiB.
inline long peak_memory() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

}  // namespace lorry::tests
