// Suppressions for the thread sanitizer, which does not see inside libraries that are built without it.
#if defined(__SANITIZE_THREAD__)

#include "consumer/log.h"

// The first caller creates spdlog's logger and formatter, under a guard that the sanitizer does not see. Creating them here, before any
// thread starts, avoids the report. Nothing is printed.
[[maybe_unused]] static const bool logger_is_made = [] {
    lorry::consumer::log_debug("the first to log");
    return true;
}();

// The sanitizer does not see librdkafka's reference counters of buffers and topics, nor, in its embedded broker under the newer group
// protocol, which thread takes a released lock. Read by the sanitizer's run time.
extern "C" const char* __tsan_default_suppressions();  // the name is the sanitizer's
extern "C" const char* __tsan_default_suppressions() {
    return "race:^rd_buf_destroy$\n"
           "race:^rwlock_destroy$\n"
           "mutex:^mtx_unlock$\n";
}

#endif
