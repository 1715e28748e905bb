// A queue between two stages, with a fixed capacity, closed at the end. Used by pipeline.cpp and generator.h.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

namespace lorry::consumer {

template <typename T>
class BoundedQueue {
public:
    explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}

    // Waits while the queue is full. False: the queue is closed and the value dropped.
    bool push(T value) {
        std::unique_lock lock(mutex_);
        has_room_.wait(lock, [&] { return closed_ || values_.size() < capacity_; });
        put(value);
        return !closed_;
    }

    // Waits up to timeout. False: the queue stayed full, and the value is unchanged. True also if the queue is closed and the value
    // dropped.
    bool push_for(T& value, std::chrono::milliseconds timeout) {
        std::unique_lock lock(mutex_);
        if (!has_room_.wait_for(lock, timeout, [&] { return closed_ || values_.size() < capacity_; })) return false;
        put(value);
        return true;
    }

    // Takes all values; waits up to timeout for the first. Empty if none came or the queue is closed and drained.
    std::vector<T> pop_all(std::chrono::milliseconds timeout) {
        std::unique_lock lock(mutex_);
        has_values_.wait_for(lock, timeout, [&] { return closed_ || !values_.empty(); });
        std::vector<T> values(std::make_move_iterator(values_.begin()), std::make_move_iterator(values_.end()));
        values_.clear();
        has_room_.notify_all();
        return values;
    }

    // No more values are accepted; those inside can still be popped.
    void close() {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        has_room_.notify_all();
        has_values_.notify_all();
    }

    bool is_drained() const {
        const std::lock_guard lock(mutex_);
        return closed_ && values_.empty();
    }

    std::size_t size() const {
        const std::lock_guard lock(mutex_);
        return values_.size();
    }

private:
    // With mutex_ held.
    void put(T& value) {
        if (closed_) return;
        values_.push_back(std::move(value));
        has_values_.notify_one();
    }

    const std::size_t capacity_;
    mutable std::mutex mutex_;
    std::condition_variable has_room_;
    std::condition_variable has_values_;
    std::deque<T> values_;  // guarded by mutex_
    bool closed_ = false;   // guarded by mutex_
};

}  // namespace lorry::consumer
