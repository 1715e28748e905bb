// A stack of its own to run code on, and the switch from one to another: what an emulated CUDA thread is made of. Used by machine.cpp.
#pragma once

#include <cstddef>

namespace lorry::kernels::cuda::emulation {

// Not tied to an operating system's thread: whoever calls switch_to runs on.
class Fiber {
public:
    // The stack of whoever calls switch_to from it first.
    Fiber() = default;
    // A stack of this many bytes with a guard page below. Throws std::bad_alloc.
    explicit Fiber(std::size_t stack_bytes);
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    // The next switch to this fiber calls entry, which must not return. Whatever ran on its stack is forgotten, without destructors.
    void restart(void (*entry)());

    // Stops this fiber, which must be the running one, and goes on where `to` stopped. Returns when somebody switches back.
    void switch_to(Fiber& to);
    // The same for a fiber that will not be switched to again before restart().
    [[noreturn]] void end_in(Fiber& to);

private:
    friend void enter();
    void leave_for(Fiber& to, bool ends);
    void arrive(Fiber& from);

    std::byte* stack_ = nullptr;  // lowest byte; for a foreign stack known once it was left
    std::size_t stack_bytes_ = 0;
    bool owns_stack_ = false;
    void* stack_pointer_ = nullptr;
    void* sanitizer_state_ = nullptr;
    void (*entry_)() = nullptr;
};

}  // namespace lorry::kernels::cuda::emulation
