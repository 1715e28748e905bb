// A stack of its own to run code on, and the switch from one to another: what an emulated CUDA thread is made of. Used by machine.cpp.
//
// Under the thread sanitizer (LORRY_EMULATION_FINDS_RACES) a fiber is a thread: what two of them access is a race, unless one released a
// mark that the other acquired in between. machine.cpp marks what CUDA orders; its own data, which the fibers share, are Unwatched.
#pragma once

#include <cstddef>

namespace lorry::kernels::cuda::emulation {

#if defined(LORRY_EMULATION_FINDS_RACES)
constexpr bool finds_races = true;
#else
constexpr bool finds_races = false;
#endif

// What the running fiber did before release(mark) happened before what another one does after acquire(mark). Nothing where no races are
// looked for.
void release(void* mark);
void acquire(void* mark);

// While it lives, what the running fiber accesses is no race.
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
    void* sanitizer_thread_ = nullptr;
    bool given_up_ = false;  // left, and neither ended nor gone on with
    void (*entry_)() = nullptr;
};

}  // namespace lorry::kernels::cuda::emulation
