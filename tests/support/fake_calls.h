// A backend of the gateway that a test plays: it keeps what is submitted and cancelled, and the test sends the events. Used by
// tests/ops/gateway and a fuzz target.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "consumer/call_backend.h"

namespace lorry::tests {

class FakeCalls final : public consumer::CallBackend {
public:
    // Called in submit(), on its thread.
    std::function<std::optional<consumer::CallRefusal>(const consumer::Call&, consumer::CallListener&)> at_submit;

    std::optional<consumer::CallRefusal> submit(consumer::Call call, consumer::CallListener& listener) override {
        auto refused = at_submit ? at_submit(call, listener) : std::nullopt;
        if (refused) return refused;
        const std::lock_guard lock(mutex_);
        listener_ = &listener;
        calls_.push_back(std::move(call));
        changed_.notify_all();
        return std::nullopt;
    }
    void cancel(const std::string& id) override {
        const std::lock_guard lock(mutex_);
        cancelled_.push_back(id);
        changed_.notify_all();
    }

    // Waits for the next call. Throws nothing: a test that waits in vain is ended by its time limit.
    consumer::Call next() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return taken_ < calls_.size(); });
        return calls_[taken_++];
    }
    void end_next(consumer::CallEnd end) {
        const consumer::Call call = next();
        listener().on_end(call.id, std::move(end));
    }
    std::string next_cancelled() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !cancelled_.empty(); });
        const std::string id = cancelled_.front();
        cancelled_.erase(cancelled_.begin());
        return id;
    }
    std::size_t count() const {
        const std::lock_guard lock(mutex_);
        return calls_.size();
    }
    consumer::CallListener& listener() {
        const std::lock_guard lock(mutex_);
        return *listener_;
    }

private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by mutex_.
    std::vector<consumer::Call> calls_;
    std::size_t taken_ = 0;
    std::vector<std::string> cancelled_;
    consumer::CallListener* listener_ = nullptr;
};

}  // namespace lorry::tests
