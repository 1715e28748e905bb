// One thread that plays all threads of a simulated cluster: each thread is a fiber, the clock moves when all of them wait, and a seed
// chooses who runs next. threads.cpp sends the program's calls to the thread library and the clock here. Used by tests/simulation.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace lorry::simulation {

using Time = std::int64_t;  // nanoseconds since the machine began
inline constexpr Time microsecond = 1'000;
inline constexpr Time millisecond = 1'000'000;
inline constexpr Time second = 1'000'000'000;
inline constexpr Time never = std::numeric_limits<Time>::max();
// What the wall clock shows when a machine begins: a moment in 2023.
inline constexpr Time wall_offset = 1'700'000'000 * second;

// A process of the simulated cluster: its fibers can be stopped, or killed without a word.
using Process = int;
inline constexpr Process world = 0;

class Machine {
public:
    struct Fiber;

    // preemption: the share of mutex operations after which another fiber may run.
    Machine(std::uint64_t seed, double preemption);
    ~Machine();
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;

    // The machine that plays the current thread; nullptr outside of run().
    static Machine* playing();

    // Plays until `body`, the first fiber of the world, returns. Throws std::runtime_error if all fibers wait for each other.
    void run(std::function<void()> body);

    Time now() const { return now_; }
    // The clock as programs read it: each reading takes a moment.
    Time read_clock() { return now_ += 100; }

    Fiber* start(Process process, std::function<void()> body);
    // Waits until the fiber has ended, and forgets it.
    void join(Fiber* fiber);
    // Removes a fiber that does not run now, without unwinding its stack.
    void remove(Fiber* fiber);
    Process process() const;
    Process new_process() { return ++last_process_; }
    void kill(Process process);  // of another process
    void stop_until(Process process, Time time);
    bool is_alive(Process process) const { return !dead_.contains(process); }

    // Waits until wake(address) is called. False: the deadline has passed.
    bool wait(const void* address, Time deadline);
    void wake(const void* address, bool all = true);
    void sleep_for(Time duration);
    // Lets others run.
    void yield();
    void maybe_yield();

    // Calls back at that time, outside of all fibers: it must not wait. Dropped if the process is dead by then.
    void at(Time time, Process process, std::function<void()> call);

    // Uniform in [low, high].
    std::int64_t draw(std::int64_t low, std::int64_t high);
    bool chance(double share) { return share > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < share; }

    // What each fiber waits for; for the message about a deadlock.
    std::string describe() const;
    std::uint64_t switches() const { return switches_; }

private:
    struct Call {
        Time time = 0;
        Process process = world;
        std::function<void()> call;
    };
    static void enter();
    void switch_to(Fiber& fiber);
    void leave();
    bool can_run(const Fiber& fiber) const;
    Time next_event() const;
    void* take_stack();

    std::mt19937_64 random_;
    const double preemption_;
    Time now_ = second;
    Process last_process_ = world;
    std::map<Process, Time> stopped_;  // until when
    std::map<Process, bool> dead_;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<std::unique_ptr<Fiber>> ended_;  // not yet joined
    std::multimap<Time, Call> calls_;
    std::vector<void*> stacks_;  // free ones
    Fiber* current_ = nullptr;
    ucontext_t scheduler_{};
    std::uint64_t switches_ = 0;
};

}  // namespace lorry::simulation
