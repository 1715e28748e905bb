// A stack to run code on, and the switch from one to another: what an emulated CUDA thread is made of. Used by machine.cpp.
//
// Under the thread sanitizer (LORRY_EMULATION_FINDS_RACES) a fiber counts as a thread: accesses by two of them are a race, unless one
// released a mark that the other acquired in between. machine.cpp marks what CUDA orders; its own data, which the fibers share, is
// Unwatched.
#pragma once

#include <cstddef>

namespace lorry::kernels::cuda::emulation {

#if defined(LORRY_EMULATION_FINDS_RACES)
constexpr bool finds_races = true;
#else
constexpr bool finds_races = false;
#endif

// What the running fiber did before release(mark) happened before what another one does after acquire(mark). No-ops if races are not looked
// for.
void release(void* mark);
void acquire(void* mark);

// While it lives, accesses by the running fiber do not count as races.
class Unwatched {
public:
    Unwatched();
    ~Unwatched();
    Unwatched(const Unwatched&) = delete;
    Unwatched& operator=(const Unwatched&) = delete;
};
// The opposite, inside an Unwatched.
class Watched {
public:
    Watched();
    ~Watched();
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;
};

// Not tied to an operating system thread: whichever thread calls switch_to() continues on the other stack.
class Fiber {
public:
    // Represents the stack of the first caller of switch_to().
    Fiber() = default;
    // A stack of this many bytes with a guard page below it. Throws std::bad_alloc.
    explicit Fiber(std::size_t stack_bytes);
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    // The next switch to this fiber calls `entry`, which must not return. Whatever ran on its stack is abandoned without running
    // destructors.
    void restart(void (*entry)());

    // Stops this fiber, which must be the running one, and continues where `to` stopped. Returns when another fiber switches back.
    void switch_to(Fiber& to);
    // The same for a fiber that is not switched to again before restart().
    [[noreturn]] void end_in(Fiber& to);

private:
    friend void enter();
    void leave_for(Fiber& to, bool ends);
    void arrive(Fiber& from);

    std::byte* stack_ = nullptr;  // lowest byte; for a foreign stack, known once it was left
    std::size_t stack_bytes_ = 0;
    bool owns_stack_ = false;
    void* stack_pointer_ = nullptr;
    void* sanitizer_state_ = nullptr;
    void* sanitizer_thread_ = nullptr;
    bool given_up_ = false;  // left, and neither ended nor resumed
    void (*entry_)() = nullptr;
};

}  // namespace lorry::kernels::cuda::emulation
