# Writes FILE, which says what is built: the version, and the commit of the checkout, "" where there is none (as in a container's build).
# Run at every build by ops/CMakeLists.txt; it leaves the file alone while it stays the same, so that nothing is compiled again.
set(commit "")
if(GIT)
    execute_process(COMMAND "${GIT}" --no-optional-locks -C "${SOURCE}" describe --always --dirty
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT "${FILE}" CONTENT [[
#include "ops/command.h"

namespace lorry::ops {

const char* program_version() { return "@VERSION@"; }
const char* program_commit() { return "@commit@"; }

}  // namespace lorry::ops
]] @ONLY)
