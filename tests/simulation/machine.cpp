// The scheduler of fibers and the clock that moves when all of them wait; see machine.h.
#include "tests/simulation/machine.h"

#include <cxxabi.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "schema/check.h"

namespace lorry::simulation {

namespace {

constexpr std::size_t stack_bytes = std::size_t{2} << 20;  // touched only as far as it is used

Machine* current_machine = nullptr;  // NOLINT: the functions in threads.cpp have no other way to find it

// What the C++ runtime keeps for a thread whose exceptions are being handled.
using ExceptionState = std::array<std::byte, sizeof(void*) + sizeof(unsigned int)>;

}  // namespace

struct Machine::Fiber {
    std::function<void()> body;
    Process process = world;
    bool ended = false;
    bool waits = false;
    const void* address = nullptr;
    Time deadline = never;
    bool woken = false;
    void* stack = nullptr;
    ucontext_t context{};
    ExceptionState exceptions{};
};

Machine::Machine(std::uint64_t seed, double preemption) : random_(seed), preemption_(preemption) {}

Machine::~Machine() {
    for (const auto& fiber : fibers_) stacks_.push_back(fiber->stack);
    for (void* stack : stacks_) munmap(stack, stack_bytes);
}

Machine* Machine::playing() { return current_machine; }

Process Machine::process() const { return current_ == nullptr ? world : current_->process; }

void Machine::enter() {
    Fiber& fiber = *current_machine->current_;
    fiber.body();
    fiber.body = nullptr;
    fiber.ended = true;
    current_machine->wake(&fiber);
    current_machine->leave();
}

void* Machine::take_stack() {
    if (!stacks_.empty()) {
        void* stack = stacks_.back();
        stacks_.pop_back();
        return stack;
    }
    void* stack = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(stack != MAP_FAILED, "there is memory for a fiber's stack");
    return stack;
}

Machine::Fiber* Machine::start(Process process, std::function<void()> body) {
    auto fiber = std::make_unique<Fiber>();
    fiber->body = std::move(body);
    fiber->process = process;
    fiber->stack = take_stack();
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = stack_bytes;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, &Machine::enter, 0);
    fibers_.push_back(std::move(fiber));
    return fibers_.back().get();
}

void Machine::switch_to(Fiber& fiber) {
    ++switches_;
    current_ = &fiber;
    fiber.waits = false;
    auto* state = reinterpret_cast<std::byte*>(abi::__cxa_get_globals());
    std::memcpy(state, fiber.exceptions.data(), fiber.exceptions.size());
    swapcontext(&scheduler_, &fiber.context);
    std::memcpy(fiber.exceptions.data(), state, fiber.exceptions.size());
    std::memset(state, 0, fiber.exceptions.size());
    current_ = nullptr;
}

void Machine::leave() { swapcontext(&current_->context, &scheduler_); }

bool Machine::can_run(const Fiber& fiber) const {
    if (fiber.waits && !fiber.woken && fiber.deadline > now_) return false;
    const auto stopped = stopped_.find(fiber.process);
    return stopped == stopped_.end() || stopped->second <= now_;
}

// The next moment at which something happens though nobody does anything.
Time Machine::next_event() const {
    Time next = calls_.empty() ? never : calls_.begin()->first;
    for (const auto& fiber : fibers_) {
        Time wake = !fiber->waits || fiber->woken ? now_ : fiber->deadline;
        if (wake == never) continue;
        if (const auto stopped = stopped_.find(fiber->process); stopped != stopped_.end()) wake = std::max(wake, stopped->second);
        next = std::min(next, wake);
    }
    return next;
}

void Machine::run(std::function<void()> body) {
    CHECK(current_machine == nullptr, "one machine plays at a time");
    current_machine = this;
    const Fiber* first = start(world, std::move(body));
    std::vector<Fiber*> ready;
    while (!first->ended) {
        while (!calls_.empty() && calls_.begin()->first <= now_) {
            const Call call = std::move(calls_.extract(calls_.begin()).mapped());
            if (is_alive(call.process)) call.call();
        }
        ready.clear();
        for (const auto& fiber : fibers_) {
            if (can_run(*fiber)) ready.push_back(fiber.get());
        }
        if (ready.empty()) {
            const Time next = next_event();
            if (next == never) {
                current_machine = nullptr;
                throw std::runtime_error("all fibers wait for each other:" + describe());
            }
            now_ = std::max(now_, next);
            continue;
        }
        Fiber& chosen = *ready[static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(ready.size()) - 1))];
        switch_to(chosen);
        if (chosen.ended && &chosen != first) {
            const auto place = std::ranges::find(fibers_, &chosen, &std::unique_ptr<Fiber>::get);
            stacks_.push_back(std::exchange(chosen.stack, nullptr));
            ended_.push_back(std::move(*place));
            fibers_.erase(place);
        }
    }
    current_machine = nullptr;
}

void Machine::join(Fiber* fiber) {
    while (!fiber->ended) wait(fiber, never);
    std::erase_if(ended_, [&](const auto& one) { return one.get() == fiber; });
}

void Machine::remove(Fiber* fiber) {
    std::erase_if(ended_, [&](const auto& one) { return one.get() == fiber; });
    std::erase_if(fibers_, [&](const auto& one) {
        if (one.get() != fiber) return false;
        CHECK(fiber != current_, "a fiber does not remove itself");
        stacks_.push_back(fiber->stack);
        return true;
    });
}

void Machine::kill(Process process) {
    CHECK(process != this->process(), "a process is killed by another");
    dead_[process] = true;
    std::erase_if(fibers_, [&](const auto& fiber) {
        if (fiber->process != process) return false;
        stacks_.push_back(fiber->stack);
        return true;
    });
}

void Machine::stop_until(Process process, Time time) { stopped_[process] = time; }

bool Machine::wait(const void* address, Time deadline) {
    CHECK(current_ != nullptr, "only a fiber waits");
    Fiber& fiber = *current_;
    fiber.waits = true;
    fiber.address = address;
    fiber.deadline = deadline;
    fiber.woken = false;
    leave();
    return std::exchange(fiber.woken, false);
}

void Machine::wake(const void* address, bool all) {
    std::vector<Fiber*> waiting;
    for (const auto& fiber : fibers_) {
        if (fiber->waits && !fiber->woken && fiber->address == address) waiting.push_back(fiber.get());
    }
    if (waiting.empty()) return;
    if (!all) waiting = {waiting[static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(waiting.size()) - 1))]};
    for (Fiber* fiber : waiting) fiber->woken = true;
}

void Machine::sleep_for(Time duration) {
    const Time end = now_ + std::max<Time>(duration, 0);
    const char nobody_wakes = 0;
    wait(&nobody_wakes, end);
}

void Machine::yield() {
    if (current_ == nullptr) return;
    now_ += microsecond;
    leave();
}

void Machine::maybe_yield() {
    if (preemption_ > 0 && current_ != nullptr && chance(preemption_)) yield();
}

void Machine::at(Time time, Process process, std::function<void()> call) { calls_.emplace(time, Call{time, process, std::move(call)}); }

std::int64_t Machine::draw(std::int64_t low, std::int64_t high) {
    return low >= high ? low : std::uniform_int_distribution<std::int64_t>(low, high)(random_);
}

std::string Machine::describe() const {
    std::string text;
    for (const auto& fiber : fibers_) {
        text += fmt::format("\n  process {}: {} until {}", fiber->process, fiber->waits ? "waits" : "runs",
                            fiber->deadline == never ? -1 : fiber->deadline / millisecond);
    }
    return text;
}

}  // namespace lorry::simulation
