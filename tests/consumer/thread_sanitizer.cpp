// What the thread sanitizer shall not report, as it does not see inside libraries that are built without it.
#if defined(__SANITIZE_THREAD__)

#include "consumer/log.h"

// spdlog's logger and its formatter are made by whoever logs first, under a static's guard that is not seen: made here, before any thread
// begins, they are nobody's race. Nothing is printed.
[[maybe_unused]] static const bool logger_is_made = [] {
    lorry::consumer::log_debug("the first to log");
    return true;
}();

// librdkafka's counters by which it knows the last user of a buffer or a topic are not seen, nor, in its embedded broker under the newer
// group protocol, who takes a lock that is given back. Read by the sanitizer's run time.
extern "C" const char* __tsan_default_suppressions();  // the name is the sanitizer's
extern "C" const char* __tsan_default_suppressions() {
    return "race:^rd_buf_destroy$\n"
           "race:^rwlock_destroy$\n"
           "mutex:^mtx_unlock$\n";
}

#endif
