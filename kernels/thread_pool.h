// A pool of threads that compute the pieces of one job at a time. The CPU backend has one for all ops; packing weights for a GPU uses one
// too. Only the thread that made it calls run().
//
// run() divides the items into one range per thread. A thread claims pieces of its own range, then of the others', and so helps threads
// whose core is busy with something else. Results never depend on which thread computes an item. Threads without work spin for some tens of
// microseconds, so that the next op of a step finds them awake, then sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace lorry::kernels {

class ThreadPool {
public:
    // The caller of run() is one of the threads; the constructor starts the others.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const { return threads_; }
    // The first item of a thread's own range, which ends where the next thread's begins.
    static std::int64_t share_begin(std::int64_t items, int thread, int threads) { return items * thread / threads; }

    // Calls work(begin, end, thread) until [0, items) is done; pieces have at most `piece` items; 0 <= thread < threads().
    // Returns when all items are done; their writes are visible to the caller. Must not be called from within work; work must not throw.
    template <class Work>
    void run(std::int64_t items, std::int64_t piece, const Work& work) {
        start(
            {[](const void* it, std::int64_t begin, std::int64_t end, int thread) { (*static_cast<const Work*>(it))(begin, end, thread); },
             &work, items, piece});
    }
    // Calls work(item) for each of [0, items): as run() does, with pieces of one item.
    template <class Work>
    void each(std::int64_t items, const Work& work) {
        run(items, 1, [&work](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t item = begin; item < end; ++item) work(item);
        });
    }

private:
    struct Job {
        void (*call)(const void* work, std::int64_t begin, std::int64_t end, int thread) = nullptr;
        const void* work = nullptr;
        std::int64_t items = 0;
        std::int64_t piece = 1;
    };
    // A thread's range of the items. Its owner and helpers claim pieces by adding to `next`.
    struct alignas(64) Range {
        std::atomic<std::int64_t> next{0};
        std::int64_t end = 0;
    };

    void start(const Job& job);
    void take_part(int thread);
    void serve(int thread);
    bool enter();
    void leave();

    static constexpr std::uint32_t open = 0x8000'0000U;

    const int threads_;
    Job job_;                                         // written while the gate is closed and no worker is inside
    std::unique_ptr<Range[]> ranges_;                 // [threads]
    alignas(64) std::atomic<std::uint32_t> gate_{0};  // `open`, plus the number of workers inside
    alignas(64) std::atomic<std::uint32_t> turn_{0};  // counts jobs; idle workers wait for it to change
    std::atomic<bool> stopping_{false};
    std::vector<std::thread> workers_;  // last: they use the members above
};

}  // namespace lorry::kernels
