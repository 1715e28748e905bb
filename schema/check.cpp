// Reports a failed CHECK and aborts.
#include "schema/check.h"

#include <cstdio>
#include <cstdlib>

namespace lorry {

void check_failed(const char* condition, const char* file, int line, std::string_view why) {
    std::fprintf(stderr, "%s:%d: CHECK(%s) failed: %.*s\n", file, line, condition, static_cast<int>(why.size()), why.data());
    std::abort();
}

}  // namespace lorry
