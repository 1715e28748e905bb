// Threads for work that would keep the network's thread from others. Used by body_readers.h, stored_requests.h and usage_pages.h.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lorry::ops {

class TaskThreads {
public:
    explicit TaskThreads(std::size_t threads) {
        for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
    }
    // Waits for the tasks that run. Those that wait are dropped.
    ~TaskThreads() {
        {
            const std::lock_guard lock(mutex_);
            is_closed_ = true;
        }
        has_tasks_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }
    TaskThreads(const TaskThreads&) = delete;
    TaskThreads& operator=(const TaskThreads&) = delete;

    // Any thread. The task does not throw. The caller bounds how many wait.
    void post(std::function<void()> task) {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
        has_tasks_.notify_one();
    }

private:
    void work() {
        std::unique_lock lock(mutex_);
        while (true) {
            has_tasks_.wait(lock, [&] { return is_closed_ || !tasks_.empty(); });
            if (is_closed_) return;
            const std::function<void()> task = std::move(tasks_.front());
            tasks_.pop_front();
            lock.unlock();
            task();
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable has_tasks_;
    std::deque<std::function<void()>> tasks_;  // guarded by mutex_
    bool is_closed_ = false;                   // guarded by mutex_
    std::vector<std::thread> threads_;
};

}  // namespace lorry::ops
