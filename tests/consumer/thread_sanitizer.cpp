// What the thread sanitizer shall not report: librdkafka is not built with it, so the counters by which it knows the last user of a
// buffer or a topic are not seen, nor, in its embedded broker under the newer group protocol, who takes a lock that is given back. Read by
// the sanitizer's run time.
#if defined(__SANITIZE_THREAD__)

extern "C" const char* __tsan_default_suppressions();  // the name is the sanitizer's
extern "C" const char* __tsan_default_suppressions() {
    return "race:^rd_buf_destroy$\n"
           "race:^rwlock_destroy$\n"
           "mutex:^mtx_unlock$\n";
}

#endif
