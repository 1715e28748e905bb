// The calls of the C++ library to the thread library and the clock. This program's definitions come before those of the C library, so
// std::thread, std::mutex, std::condition_variable, std::future, sleeps and clocks work in fibers and simulated time while a machine plays,
// and as always at other times. No code of consumer/ or engine/ knows of it.
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>

#include "tests/simulation/machine.h"

namespace {

using lorry::simulation::Machine;
using lorry::simulation::Time;
using lorry::simulation::wall_offset;

// The C library's function. Looked up at its first call, which may come before any constructor.
template <typename Function>
Function* real(Function*& found, const char* name) {
    if (found == nullptr) found = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
    return found;
}

Time time_of(const timespec& time) { return Time{time.tv_sec} * lorry::simulation::second + time.tv_nsec; }
timespec timespec_of(Time time) { return {.tv_sec = time / lorry::simulation::second, .tv_nsec = time % lorry::simulation::second}; }
Time machine_time(const timespec& time, clockid_t clock) { return time_of(time) - (clock == CLOCK_REALTIME ? wall_offset : 0); }

// A simulated mutex is the C library's structure: __lock is 1 while it is held.
void lock(Machine& machine, pthread_mutex_t* mutex) {
    while (mutex->__data.__lock != 0) machine.wait(mutex, lorry::simulation::never);
    mutex->__data.__lock = 1;
}
void unlock(Machine& machine, pthread_mutex_t* mutex) {
    mutex->__data.__lock = 0;
    machine.wake(mutex, false);
}

int wait_for(Machine& machine, pthread_cond_t* condition, pthread_mutex_t* mutex, Time deadline) {
    unlock(machine, mutex);
    const bool woken = machine.wait(condition, deadline);
    lock(machine, mutex);
    return woken ? 0 : ETIMEDOUT;
}

long futex(Machine& machine, const std::uint32_t* address, int operation, std::uint32_t value, const timespec* deadline) {
    switch (operation & FUTEX_CMD_MASK) {
        case FUTEX_WAKE: machine.wake(address, value > 1); return 1;
        case FUTEX_WAIT: {
            if (*address != value) break;
            return machine.wait(address, deadline == nullptr ? lorry::simulation::never : machine.now() + time_of(*deadline)) ? 0 : -1;
        }
        case FUTEX_WAIT_BITSET: {
            if (*address != value) break;
            const clockid_t clock = (operation & FUTEX_CLOCK_REALTIME) != 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
            if (machine.wait(address, deadline == nullptr ? lorry::simulation::never : machine_time(*deadline, clock))) return 0;
            errno = ETIMEDOUT;
            return -1;
        }
        default: errno = ENOSYS; return -1;
    }
    errno = EAGAIN;
    return -1;
}

}  // namespace

extern "C" {

int pthread_create(pthread_t* id, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
    static decltype(pthread_create)* function = nullptr;
    Machine* machine = Machine::playing();
    if (machine == nullptr) return real(function, "pthread_create")(id, attributes, body, argument);
    *id = reinterpret_cast<pthread_t>(machine->start(machine->process(), [body, argument] { body(argument); }));
    return 0;
}

int pthread_join(pthread_t id, void** result) {
    static decltype(pthread_join)* function = nullptr;
    Machine* machine = Machine::playing();
    if (machine == nullptr) return real(function, "pthread_join")(id, result);
    machine->join(reinterpret_cast<Machine::Fiber*>(id));
    return 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
    static decltype(pthread_mutex_lock)* function = nullptr;
    Machine* machine = Machine::playing();
    if (machine == nullptr) return real(function, "pthread_mutex_lock")(mutex);
    machine->maybe_yield();
    lock(*machine, mutex);
    return 0;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
    static decltype(pthread_mutex_unlock)* function = nullptr;
    Machine* machine = Machine::playing();
    if (machine == nullptr) return real(function, "pthread_mutex_unlock")(mutex);
    unlock(*machine, mutex);
    machine->maybe_yield();
    return 0;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
    static decltype(pthread_cond_wait)* function = nullptr;
    Machine* machine = Machine::playing();
    if (machine == nullptr) return real(function, "pthread_cond_wait")(condition, mutex);
    return wait_for(*machine, condition, mutex, lorry::simulation::never);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* deadline) {
    static decltype(pthread_cond_timedwait)* function = nullptr;
    Machine* machine = Machine::playing();
    if (machine == nullptr) return real(function, "pthread_cond_timedwait")(condition, mutex, deadline);
    return wait_for(*machine, condition, mutex, machine_time(*deadline, CLOCK_REALTIME));
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* deadline) {
    static decltype(pthread_cond_clockwait)* function = nullptr;
    Machine* machine = Machine::playing();
    if (machine == nullptr) return real(function, "pthread_cond_clockwait")(condition, mutex, clock, deadline);
    return wait_for(*machine, condition, mutex, machine_time(*deadline, clock));
}

int pthread_cond_signal(pthread_cond_t* condition) {
    static decltype(pthread_cond_signal)* function = nullptr;
    Machine* machine = Machine::playing();
    if (machine == nullptr) return real(function, "pthread_cond_signal")(condition);
    machine->wake(condition, false);
    return 0;
}

int pthread_cond_broadcast(pthread_cond_t* condition) {
    static decltype(pthread_cond_broadcast)* function = nullptr;
    Machine* machine = Machine::playing();
    if (machine == nullptr) return real(function, "pthread_cond_broadcast")(condition);
    machine->wake(condition);
    return 0;
}

int clock_gettime(clockid_t clock, timespec* time) {
    static decltype(clock_gettime)* function = nullptr;
    Machine* machine = Machine::playing();
    if (machine == nullptr || (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME)) return real(function, "clock_gettime")(clock, time);
    *time = timespec_of(machine->read_clock() + (clock == CLOCK_REALTIME ? wall_offset : 0));
    return 0;
}

int nanosleep(const timespec* duration, timespec* left) {
    static decltype(nanosleep)* function = nullptr;
    Machine* machine = Machine::playing();
    if (machine == nullptr) return real(function, "nanosleep")(duration, left);
    machine->sleep_for(time_of(*duration));
    return 0;
}

int sched_yield() {
    static int (*function)() = nullptr;
    Machine* machine = Machine::playing();
    if (machine == nullptr) return real(function, "sched_yield")();
    machine->yield();
    return 0;
}

// std::future waits in futexes.
long syscall(long number, ...) {
    static long (*function)(long, ...) = nullptr;
    va_list list;
    va_start(list, number);
    long arguments[6];
    for (long& argument : arguments) argument = va_arg(list, long);
    va_end(list);
    Machine* machine = Machine::playing();
    if (machine == nullptr || number != SYS_futex) {
        return real(function, "syscall")(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
    }
    return futex(*machine, reinterpret_cast<const std::uint32_t*>(arguments[0]), static_cast<int>(arguments[1]),
                 static_cast<std::uint32_t>(arguments[2]), reinterpret_cast<const timespec*>(arguments[3]));
}

}  // extern "C"
