// Turns Ctrl-C and SIGTERM into a call on a thread of its own. Commands that finish their work first (`run`, `worker`, …) make a watcher
// before any other thread exists, so that all threads leave these signals to it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace lorry::ops {

class SignalWatcher {
public:
    SignalWatcher();
    ~SignalWatcher();
    SignalWatcher(const SignalWatcher&) = delete;
    SignalWatcher& operator=(const SignalWatcher&) = delete;

    // While this object lives, the first signal calls `stop`, once, on the watcher's thread. A second signal, or one outside this object's
    // life, ends the process at once. If the process has not ended within `patience` of the first signal, it logs an error and ends with
    // exit code 1.
    class Armed {
    public:
        Armed(SignalWatcher& watcher, std::function<void()> stop, std::optional<std::chrono::milliseconds> patience = std::nullopt);
        ~Armed();
        Armed(const Armed&) = delete;
        Armed& operator=(const Armed&) = delete;

    private:
        SignalWatcher& watcher_;
    };
    bool has_stopped() const { return stopped_.load(); }

private:
    void watch();
    void set_stop(std::function<void()> stop, std::optional<std::chrono::milliseconds> patience);

    std::mutex mutex_;
    std::function<void()> stop_;                         // guarded by mutex_
    std::optional<std::chrono::milliseconds> patience_;  // guarded by mutex_
    std::atomic<bool> stopped_ = false;
    std::atomic<bool> ending_ = false;
    std::thread thread_;
};

}  // namespace lorry::ops
