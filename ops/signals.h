// Ctrl-C and SIGTERM as ordinary calls on a thread of their own. Made first thing by the commands that drain (`run`, `worker`), before any
// other thread exists, so that all threads leave these signals to this one.
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

    // While this object lives, the first signal calls `stop`, once, on the watcher's thread. Before and after, and for a second signal, the
    // process ends at once; so it does, with exit code 1 and a word about it, when it has not ended within `patience` of the first.
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
