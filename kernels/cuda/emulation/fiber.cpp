// The context switch for x86-64 (System V ABI: six registers and the stack pointer survive a call), with the sanitizers informed of it.
#include "kernels/cuda/emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

#include "schema/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(LORRY_EMULATION_FINDS_RACES)
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* mark);
void __tsan_release(void* mark);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

extern "C" void lorry_switch_stack(void** save_stack_pointer, void* stack_pointer);
asm(R"(
    .text
    .globl lorry_switch_stack
    .type lorry_switch_stack, @function
lorry_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size lorry_switch_stack, .-lorry_switch_stack
)");

namespace lorry::kernels::cuda::emulation {

namespace {

constexpr std::size_t guard_bytes = 4096;
constexpr std::size_t saved_registers = 6;

// The last switch: read by the first code that runs on the other stack. Only one thread emulates at a time (machine.cpp).
Fiber* switched_from = nullptr;
Fiber* switched_to = nullptr;

}  // namespace

#if defined(LORRY_EMULATION_FINDS_RACES)
void release(void* mark) { __tsan_release(mark); }
void acquire(void* mark) { __tsan_acquire(mark); }

namespace {

void stop_watching() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
void watch() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

}  // namespace
#else
void release(void*) {}
void acquire(void*) {}

namespace {

void stop_watching() {}
void watch() {}

}  // namespace
#endif

Unwatched::Unwatched() { stop_watching(); }
Unwatched::~Unwatched() { watch(); }
Watched::Watched() { watch(); }
Watched::~Watched() { stop_watching(); }

// The first code on a fiber's stack. Its frame is never left, so the sanitizer must not mark it.
__attribute__((no_sanitize_address)) void enter() {
    switched_to->arrive(*switched_from);
    switched_to->entry_();
    CHECK(false, "a fiber's entry does not return");
}

Fiber::Fiber(std::size_t stack_bytes) : stack_bytes_(stack_bytes), owns_stack_(true) {
    void* const memory =
        mmap(nullptr, stack_bytes + guard_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    CHECK(mprotect(memory, guard_bytes, PROT_NONE) == 0, "a page can be protected");
    stack_ = static_cast<std::byte*>(memory) + guard_bytes;
#if defined(LORRY_EMULATION_FINDS_RACES)
    sanitizer_thread_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(LORRY_EMULATION_FINDS_RACES)
    // A fiber that was abandoned within an Unwatched must not be destroyed; the process that broke a kernel's rules ends soon.
    if (owns_stack_ && !given_up_) __tsan_destroy_fiber(sanitizer_thread_);
#endif
    if (owns_stack_) munmap(stack_ - guard_bytes, stack_bytes_ + guard_bytes);
}

void Fiber::restart(void (*entry)()) {
    CHECK(owns_stack_, "only a fiber with a stack of its own can restart");
#if defined(__SANITIZE_ADDRESS__)
    // Clears the marks of an abandoned fiber; one that ended left nothing below its first frames.
    if (stack_pointer_ != nullptr) {
        auto* const from = static_cast<std::byte*>(stack_pointer_) - guard_bytes;
        __asan_unpoison_memory_region(from, static_cast<std::size_t>(stack_ + stack_bytes_ - from));
    }
    sanitizer_state_ = nullptr;
#endif
#if defined(LORRY_EMULATION_FINDS_RACES)
    if (given_up_) sanitizer_thread_ = __tsan_create_fiber(0);
#endif
    given_up_ = false;
    entry_ = entry;
    // Prepares the stack as if enter() were about to start: registers, return address, and the alignment that follows a call.
    auto* const top = reinterpret_cast<void**>(stack_ + stack_bytes_) - 2;
    top[0] = reinterpret_cast<void*>(&enter);
    top[1] = nullptr;
    std::memset(top - saved_registers, 0, saved_registers * sizeof(void*));
    stack_pointer_ = top - saved_registers;
}

__attribute__((no_sanitize_address)) void Fiber::leave_for(Fiber& to, bool ends) {
    switched_from = this;
    switched_to = &to;
    given_up_ = !ends;
    to.given_up_ = false;
#if defined(LORRY_EMULATION_FINDS_RACES)
    constexpr unsigned orders_nothing = 1;
    if (!owns_stack_) sanitizer_thread_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to.sanitizer_thread_, orders_nothing);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(ends ? nullptr : &sanitizer_state_, to.stack_, to.stack_bytes_);
#else
    static_cast<void>(ends);
#endif
    lorry_switch_stack(&stack_pointer_, to.stack_pointer_);
    arrive(*switched_from);
}

__attribute__((no_sanitize_address)) void Fiber::arrive(Fiber& from) {
#if defined(__SANITIZE_ADDRESS__)
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(sanitizer_state_, &bottom, &bytes);
    if (!from.owns_stack_) {
        from.stack_ = static_cast<std::byte*>(const_cast<void*>(bottom));
        from.stack_bytes_ = bytes;
    }
#else
    static_cast<void>(from);
#endif
}

void Fiber::switch_to(Fiber& to) { leave_for(to, false); }

__attribute__((no_sanitize_address)) void Fiber::end_in(Fiber& to) {
    leave_for(to, true);
    __builtin_unreachable();
}

}  // namespace lorry::kernels::cuda::emulation
