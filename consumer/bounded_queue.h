// A queue between two stages: sized at start, closed at the end. Used by pipeline.cpp.
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

    // Waits up to timeout. False: there was no room, and the value is as it was. True also when the queue is closed and the value dropped.
    bool push_for(T& value, std::chrono::milliseconds timeout) {
        std::unique_lock lock(mutex_);
        if (!has_room_.wait_for(lock, timeout, [&] { return closed_ || values_.size() < capacity_; })) return false;
        put(value);
        return true;
    }

    // Everything that is there; waits up to timeout for the first value. Empty when none came or the queue is closed and drained.
    std::vector<T> pop_all(std::chrono::milliseconds timeout) {
        std::unique_lock lock(mutex_);
        has_values_.wait_for(lock, timeout, [&] { return closed_ || !values_.empty(); });
        std::vector<T> values(std::make_move_iterator(values_.begin()), std::make_move_iterator(values_.end()));
        values_.clear();
        has_room_.notify_all();
        return values;
    }

    // No more values are taken; those inside can still be popped.
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
    // Under mutex_.
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
