// A disk that is full, for tests of what is written. Used by tests of schema/store.
#pragma once

#include <sys/resource.h>

#include <csignal>
#include <string>

#include "tests/support/thrown.h"

namespace lorry::tests {

// What a call throws, as thrown_by() says it, while no file of this process may grow beyond so many bytes.
std::string thrown_with_full_disk(rlim_t bytes, const auto& call) {
    // The signal would end the process.
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit old{};
    getrlimit(RLIMIT_FSIZE, &old);
    const rlimit small{.rlim_cur = bytes, .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    std::string error = thrown_by(call);
    setrlimit(RLIMIT_FSIZE, &old);
    return error;
}

}  // namespace lorry::tests
