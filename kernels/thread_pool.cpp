// The gate, the claiming of pieces and the waiting; see thread_pool.h.
#include "kernels/thread_pool.h"

#include <algorithm>
#include <chrono>

#include "schema/check.h"

namespace lorry::kernels {

namespace {

using Clock = std::chrono::steady_clock;

// Longer than the gap between two ops, but too short to take noticeable time from other processes.
constexpr Clock::duration awake_time = std::chrono::microseconds(20);
// Pauses between two readings of the clock; a pause takes 10 to 140 cycles, depending on the processor.
constexpr int pauses = 16;

// Waits until `value` is no longer `old`, first spinning, then sleeping; returns the new value.
std::uint32_t await_change(std::atomic<std::uint32_t>& value, std::uint32_t old) {
    const auto spin = [&] {
        for (int i = 0; i < pauses; ++i) {
            if (value.load(std::memory_order_acquire) != old) return true;
            __builtin_ia32_pause();
        }
        return false;
    };
    // A short wait does not read the clock.
    if (spin()) return value.load(std::memory_order_acquire);
    for (const auto end = Clock::now() + awake_time; Clock::now() < end;) {
        if (spin()) return value.load(std::memory_order_acquire);
    }
    value.wait(old, std::memory_order_acquire);
    return value.load(std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads), ranges_(std::make_unique<Range[]>(static_cast<std::size_t>(threads))) {
    CHECK(threads >= 1, "a pool has at least one thread, its caller");
    workers_.reserve(static_cast<std::size_t>(threads - 1));
    for (int thread = 1; thread < threads; ++thread) {
        workers_.emplace_back([this, thread] { serve(thread); });
    }
}

ThreadPool::~ThreadPool() {
    stopping_.store(true, std::memory_order_release);
    turn_.fetch_add(1, std::memory_order_acq_rel);
    turn_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::start(const Job& job) {
    if (job.items <= 0) return;
    if (threads_ == 1 || job.items <= job.piece) {
        for (std::int64_t begin = 0; begin < job.items; begin += job.piece)
            job.call(job.work, begin, std::min(job.items, begin + job.piece), 0);
        return;
    }
    job_ = job;
    for (int thread = 0; thread < threads_; ++thread) {
        Range& range = ranges_[static_cast<std::size_t>(thread)];
        range.next.store(share_begin(job.items, thread, threads_), std::memory_order_relaxed);
        range.end = share_begin(job.items, thread + 1, threads_);
    }
    gate_.store(open, std::memory_order_release);
    turn_.fetch_add(1, std::memory_order_acq_rel);
    turn_.notify_all();
    take_part(0);
    // All pieces are claimed: no other worker needs to enter; those inside finish theirs.
    std::uint32_t inside = gate_.fetch_and(~open, std::memory_order_acq_rel) & ~open;
    while (inside != 0) inside = await_change(gate_, inside);
}

void ThreadPool::take_part(int thread) {
    for (int i = 0; i < threads_; ++i) {
        Range& range = ranges_[static_cast<std::size_t>((thread + i) % threads_)];
        while (range.next.load(std::memory_order_relaxed) < range.end) {
            const std::int64_t begin = range.next.fetch_add(job_.piece, std::memory_order_relaxed);
            if (begin >= range.end) break;
            job_.call(job_.work, begin, std::min(range.end, begin + job_.piece), thread);
        }
    }
}

bool ThreadPool::enter() {
    std::uint32_t gate = gate_.load(std::memory_order_relaxed);
    while ((gate & open) != 0) {
        if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
    }
    return false;
}

void ThreadPool::leave() {
    if (gate_.fetch_sub(1, std::memory_order_acq_rel) - 1 == 0) gate_.notify_one();
}

void ThreadPool::serve(int thread) {
    std::uint32_t turn = 0;
    for (;;) {
        turn = await_change(turn_, turn);
        if (stopping_.load(std::memory_order_acquire)) return;
        // If the job was done before this thread woke up, the gate is closed.
        if (!enter()) continue;
        take_part(thread);
        leave();
    }
}

}  // namespace lorry::kernels
