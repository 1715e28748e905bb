// Implements blocks, threads, barriers and warp operations with fibers; see machine.h.
#include "kernels/cuda/emulation/machine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/fiber.h"
#include "schema/check.h"

namespace lorry::kernels::cuda::emulation {

namespace {

constexpr int threads_max = 1024;
constexpr int grid_yz_max = 65535;
constexpr std::size_t shared_bytes_max = std::size_t{227} << 10;  // of compute capability 9.0
constexpr std::size_t stack_bytes = std::size_t{256} << 10;

enum class Wait : std::uint8_t { nothing, block, warp };

struct Copy {
    void* to = nullptr;
    const void* from = nullptr;
    int bytes = 0;
    int group = 0;
    bool landed = false;
};

constexpr int fiber_sets = finds_races ? 4 : 1;

struct Thread {
    Thread() {
        for (auto& each : fibers) each = std::make_unique<Fiber>(stack_bytes);
    }
    std::array<std::unique_ptr<Fiber>, fiber_sets> fibers;  // one of them runs, chosen by the block's set
    bool ended = true;
    Wait waits_for = Wait::nothing;
    std::source_location where;
    std::uint64_t priority = 0;
    std::vector<Copy> copies;
    int copy_group = 0;
};

// The operation that lanes of a warp have reached.
struct Meeting {
    int arrived = 0;     // lanes
    int first_lane = 0;  // first of those
    WarpOperation operation = WarpOperation::barrier;
    std::source_location where;
    Operands operands{};
};

// The marks that a block's barriers order by. A barrier must not be confused with the next one, which some threads reach before others have
// left this one.
struct Marks {
    struct TwoInTurn {
        char marks[2] = {};
        int passed = 0;
        void* current() { return &marks[passed % 2]; }
    };
    TwoInTurn block;
    TwoInTurn warps[threads_max / warp_size];
};

struct FreeMemory {
    void operator()(std::byte* memory) const { std::free(memory); }
};
struct BlockMemory {
    std::unique_ptr<std::byte, FreeMemory> shared;
    std::unique_ptr<Marks> marks;
};

const char* name_of(WarpOperation operation) {
    switch (operation) {
        case WarpOperation::barrier: return "a warp barrier";
        case WarpOperation::shuffle: return "a shuffle";
        case WarpOperation::ballot: return "a ballot";
        case WarpOperation::multiply: return "mma";
        case WarpOperation::load_matrix: return "ldmatrix";
    }
    return "";
}

std::string place(const std::source_location& where) { return std::string(where.file_name()) + ":" + std::to_string(where.line()); }

bool same_place(const std::source_location& a, const std::source_location& b) {
    const bool same_file = a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0;
    return same_file && a.line() == b.line() && a.column() == b.column();
}

// The one emulated device of the process. A block's threads find it without an argument, like a GPU.
class Machine {
public:
    static Machine& get() {
        static Machine machine;
        return machine;
    }

    void set_schedule(const Schedule& schedule) {
        const std::lock_guard lock(mutex_);
        schedule_ = schedule;
        random_.seed(schedule.seed);
    }

    void run(const Shape& shape, const std::function<void()>& body);

    int thread() const { return running_; }
    int threads() const { return shape_.threads; }
    Index3 block() const { return block_; }
    Index3 grid() const { return shape_.grid; }
    std::uint64_t& bank_conflicts() { return bank_conflicts_; }

    [[noreturn]] void fault(const std::string& what, const std::source_location& where) const {
        throw Fault(place(where) + ": block (" + std::to_string(block_.x) + ", " + std::to_string(block_.y) + ", " +
                    std::to_string(block_.z) + "), thread " + std::to_string(running_) + ": " + what);
    }
    std::byte* shared_memory(std::size_t bytes, const std::source_location& where);
    void barrier(const std::source_location& where);
    void warp_operation(WarpOperation operation, void* operands, void (*compute)(const Operands& all), const std::source_location& where);
    void copy_async(const Copy& copy, const std::source_location& where);
    void copy_async_commit() { ++self().copy_group; }
    void copy_async_wait(int groups_in_flight);

private:
    static void thread_main();

    Thread& self() { return *threads_[static_cast<std::size_t>(running_)]; }
    Thread& thread_at(int index) { return *threads_[static_cast<std::size_t>(index)]; }
    void run_block();
    void body_of_thread();
    int take_ready();
    void go_on(bool ends);
    void release_barrier();
    std::string waiting_threads();
    static void land(Copy& copy);
    Meeting& meeting_of(int thread) { return meetings_[static_cast<std::size_t>(thread / warp_size)]; }
    Fiber& fiber() { return *self().fibers[static_cast<std::size_t>(set_)]; }

    std::mutex mutex_;  // held by a launch
    Schedule schedule_;
    std::mt19937_64 random_{1};
    std::uint64_t bank_conflicts_ = 0;

    // State of the launch.
    Shape shape_;
    const std::function<void()>* body_ = nullptr;
    std::vector<std::unique_ptr<Thread>> threads_;
    std::unique_ptr<Fiber> launcher_;
    char begins_ = 0;  // marks: of the launcher before a block, and of all threads that ended
    char ends_ = 0;
    std::vector<BlockMemory> used_;  // of ended blocks; reuse would order blocks, or race

    // State of the block.
    Index3 block_;
    int set_ = 0;
    BlockMemory memory_;
    std::array<Meeting, threads_max / warp_size> meetings_;  // by warp
    std::vector<int> ready_;                                 // threads that may run; the next one is last unless the order is drawn
    int running_ = 0;
    int alive_ = 0;
    int at_barrier_ = 0;
    std::source_location barrier_place_;
    std::optional<std::exception_ptr> failure_;
};

void Machine::run(const Shape& shape, const std::function<void()>& body) {
    const std::lock_guard lock(mutex_);
    const auto [x, y, z] = shape.grid;
    CHECK(shape.threads > 0 && shape.threads <= threads_max, "a block has 1 to 1,024 threads");
    CHECK(x > 0 && y > 0 && z > 0 && y <= grid_yz_max && z <= grid_yz_max, "a grid is within the device's limits");
    CHECK(shape.shared_bytes <= shared_bytes_max, "a block's shared memory is within the device's limit");
    shape_ = shape;
    body_ = &body;
    launcher_ = std::make_unique<Fiber>();
    while (std::ssize(threads_) < shape.threads) threads_.push_back(std::make_unique<Thread>());

    const std::int64_t blocks = std::int64_t{x} * y * z;
    const bool drawn = schedule_.order == Order::random || schedule_.order == Order::run_ahead;
    const std::int64_t start = drawn ? static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(blocks)) : 0;
    for (std::int64_t i = 0; i < blocks; ++i) {
        const std::int64_t index = schedule_.order == Order::descending ? blocks - 1 - i : (start + i) % blocks;
        block_ = {static_cast<int>(index % x), static_cast<int>(index / x % y), static_cast<int>(index / x / y)};
        run_block();
    }
    acquire(&ends_);
    used_.clear();
}

void Machine::run_block() {
    if (shape_.shared_bytes > 0) {
        void* memory = nullptr;
        if (posix_memalign(&memory, 128, shape_.shared_bytes) != 0) throw std::bad_alloc();
        std::memset(memory, 0xFF, shape_.shared_bytes);
        memory_.shared.reset(static_cast<std::byte*>(memory));
    }
    memory_.marks = std::make_unique<Marks>();
    alive_ = shape_.threads;
    at_barrier_ = 0;
    for (Meeting& meeting : meetings_) meeting.arrived = 0;
    failure_.reset();
    ready_.clear();
    set_ = finds_races ? static_cast<int>(random_() % fiber_sets) : 0;
    for (int i = 0; i < shape_.threads; ++i) {
        Thread& thread = thread_at(i);
        thread.fibers[static_cast<std::size_t>(set_)]->restart(&thread_main);
        thread.ended = false;
        thread.waits_for = Wait::nothing;
        thread.priority = schedule_.order == Order::run_ahead ? random_() : 0;
        thread.copies.clear();
        thread.copy_group = 0;
        ready_.push_back(schedule_.order == Order::ascending ? shape_.threads - 1 - i : i);
    }
    running_ = take_ready();
    release(&begins_);
    launcher_->switch_to(fiber());
    if (finds_races) used_.push_back(std::move(memory_));
    memory_ = {};
    if (failure_) std::rethrow_exception(*failure_);
}

void Machine::thread_main() {
    Machine& machine = get();
    machine.body_of_thread();
    machine.go_on(true);
    CHECK(false, "a thread that ended does not run on");
}

void Machine::body_of_thread() {
    try {
        acquire(&begins_);
        (*body_)();
        release(&ends_);
        const Unwatched own_data;
        Thread& me = self();
        if (!me.copies.empty()) fault("ended with a cp.async that it never waited for", me.where);
        me.ended = true;
        --alive_;
        if (alive_ > 0 && at_barrier_ == alive_) release_barrier();
        if (ready_.empty() && alive_ > 0) fault("the threads wait for each other forever:" + waiting_threads(), me.where);
    } catch (...) {
        failure_ = std::current_exception();
    }
}

int Machine::take_ready() {
    std::size_t at = ready_.size() - 1;
    if (schedule_.order == Order::random) {
        at = static_cast<std::size_t>(((random_() >> 32) * ready_.size()) >> 32);
    } else if (schedule_.order == Order::run_ahead) {
        const auto priority = [&](int thread) { return thread_at(thread).priority; };
        const auto first = std::max_element(ready_.begin(), ready_.end(), [&](int a, int b) { return priority(a) < priority(b); });
        at = static_cast<std::size_t>(first - ready_.begin());
    }
    const int thread = ready_[at];
    ready_[at] = ready_.back();
    ready_.pop_back();
    return thread;
}

// Runs the next thread, or the launcher when the block is done or broken.
void Machine::go_on(bool ends) {
    Fiber& mine = fiber();
    Fiber* next = launcher_.get();
    if (!failure_ && !ready_.empty()) {
        const Unwatched own_data;
        const int thread = take_ready();
        if (thread == running_) return;
        running_ = thread;
        next = &fiber();
    }
    if (ends) mine.end_in(*next);
    mine.switch_to(*next);
}

std::string Machine::waiting_threads() {
    std::string text;
    for (int i = 0; i < shape_.threads; ++i) {
        const Thread& thread = thread_at(i);
        if (thread.ended) continue;
        const char* const what = thread.waits_for == Wait::block ? "the block's barrier" : name_of(meeting_of(i).operation);
        text += "\n  thread " + std::to_string(i) + " in " + what + " at " + place(thread.where);
    }
    return text;
}

std::byte* Machine::shared_memory(std::size_t bytes, const std::source_location& where) {
    if (bytes > shape_.shared_bytes) {
        fault("wants " + std::to_string(bytes) + " bytes of shared memory, the launch gave " + std::to_string(shape_.shared_bytes), where);
    }
    return memory_.shared.get();
}

void Machine::release_barrier() {
    at_barrier_ = 0;
    ++memory_.marks->block.passed;
    for (int i = 0; i < shape_.threads; ++i) {
        const int index = schedule_.order == Order::ascending ? shape_.threads - 1 - i : i;
        Thread& thread = thread_at(index);
        if (thread.waits_for != Wait::block) continue;
        thread.waits_for = Wait::nothing;
        ready_.push_back(index);
    }
}

void Machine::barrier(const std::source_location& where) {
    Thread& me = self();
    if (at_barrier_ > 0 && !same_place(barrier_place_, where)) {
        fault("waits at this barrier while others wait at the one at " + place(barrier_place_), where);
    }
    barrier_place_ = where;
    me.waits_for = Wait::block;
    me.where = where;
    void* const mark = memory_.marks->block.current();
    release(mark);
    if (++at_barrier_ == alive_) release_barrier();
    if (ready_.empty()) fault("the threads wait for each other forever:" + waiting_threads(), where);
    go_on(false);
    acquire(mark);
}

void Machine::warp_operation(WarpOperation operation, void* operands, void (*compute)(const Operands& all),
                             const std::source_location& where) {
    Marks::TwoInTurn& marks = memory_.marks->warps[running_ / warp_size];
    void* const mark = marks.current();
    release(mark);
    const int first = running_ / warp_size * warp_size;
    if (first + warp_size > shape_.threads) fault(std::string(name_of(operation)) + " in a warp that is not full", where);
    if (alive_ < shape_.threads) {
        for (int lane = 0; lane < warp_size; ++lane) {
            if (thread_at(first + lane).ended)
                fault(std::string(name_of(operation)) + " after lane " + std::to_string(lane) + " has ended", where);
        }
    }
    Meeting& meeting = meeting_of(running_);
    if (meeting.arrived == 0) {
        meeting.first_lane = running_ - first;
        meeting.operation = operation;
        meeting.where = where;
    } else if (meeting.operation != operation || !same_place(meeting.where, where)) {
        fault(std::string(name_of(operation)) + " while lane " + std::to_string(meeting.first_lane) + " waits in " +
                  name_of(meeting.operation) + " at " + place(meeting.where),
              where);
    }
    Thread& me = self();
    me.waits_for = Wait::warp;
    me.where = where;
    meeting.operands[static_cast<std::size_t>(running_ - first)] = operands;
    if (++meeting.arrived == warp_size) {
        acquire(mark);
        if (compute != nullptr) {
            const Watched operands_of_kernel;
            compute(meeting.operands);
        }
        release(mark);
        ++marks.passed;
        meeting.arrived = 0;
        for (int i = 0; i < warp_size; ++i) {
            const int lane = schedule_.order == Order::ascending ? warp_size - 1 - i : i;
            thread_at(first + lane).waits_for = Wait::nothing;
            ready_.push_back(first + lane);
        }
    }
    if (ready_.empty()) fault("the threads wait for each other forever:" + waiting_threads(), where);
    go_on(false);
    acquire(mark);
}

void Machine::land(Copy& copy) {
    if (copy.landed) return;
    const Watched memory_of_kernel;
    constexpr int width = 16;
    if (copy.bytes > 0) std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
    std::memset(static_cast<std::byte*>(copy.to) + copy.bytes, 0, static_cast<std::size_t>(width - copy.bytes));
    copy.landed = true;
}

void Machine::copy_async(const Copy& copy, const std::source_location& where) {
    const auto aligned = [](const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; };
    if (!aligned(copy.to) || !aligned(copy.from)) fault("cp.async between addresses that are not multiples of 16", where);
    const auto* const to = static_cast<const std::byte*>(copy.to);
    if (to < memory_.shared.get() || to + 16 > memory_.shared.get() + shape_.shared_bytes)
        fault("cp.async to memory that is not shared", where);
    Thread& me = self();
    me.where = where;
    me.copies.push_back(copy);
    me.copies.back().group = me.copy_group;
    if (random_() % 2 == 0) land(me.copies.back());
}

void Machine::copy_async_wait(int groups_in_flight) {
    Thread& me = self();
    std::erase_if(me.copies, [&](Copy& copy) {
        const bool waited_for = copy.group < me.copy_group - groups_in_flight;
        if (waited_for) land(copy);
        return waited_for;
    });
}

}  // namespace

void set_schedule(const Schedule& schedule) { Machine::get().set_schedule(schedule); }
void run(const Shape& shape, const std::function<void()>& body) {
    const Unwatched own_data;
    Machine::get().run(shape, body);
}
std::uint64_t bank_conflicts() { return Machine::get().bank_conflicts(); }
void count_bank_conflict() { ++Machine::get().bank_conflicts(); }
int thread_in_block() { return Machine::get().thread(); }
int block_threads() { return Machine::get().threads(); }
Index3 block() { return Machine::get().block(); }
Index3 grid() { return Machine::get().grid(); }
void fault(const std::string& what, const std::source_location& where) { Machine::get().fault(what, where); }
std::byte* shared_memory(std::size_t bytes, const std::source_location& where) { return Machine::get().shared_memory(bytes, where); }
void barrier(const std::source_location& where) {
    const Unwatched own_data;
    Machine::get().barrier(where);
}
void warp_operation(WarpOperation operation, void* operands, void (*compute)(const Operands& all), const std::source_location& where) {
    const Unwatched own_data;
    Machine::get().warp_operation(operation, operands, compute, where);
}
void copy_async(void* to, const void* from, int bytes, const std::source_location& where) {
    const Unwatched own_data;
    Machine::get().copy_async({.to = to, .from = from, .bytes = bytes}, where);
}
void copy_async_commit() { Machine::get().copy_async_commit(); }
void copy_async_wait(int groups_in_flight) {
    const Unwatched own_data;
    Machine::get().copy_async_wait(groups_in_flight);
}

}  // namespace lorry::kernels::cuda::emulation
