// Waits for signals with sigtimedwait.
#include "ops/signals.h"

#include <spdlog/spdlog.h>
#include <unistd.h>
#include <csignal>
#include <ctime>

#include "schema/check.h"

namespace lorry::ops {
namespace {

constexpr long wait_nanoseconds = 50'000'000;
constexpr int exit_code_base = 128;  // shells report an end by a signal as this and its number

sigset_t watched() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return set;
}

}  // namespace

SignalWatcher::SignalWatcher() {
    const sigset_t set = watched();
    CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0, "the signal set is valid");
    // Writing to a closed pipe is an error of write(), and does not end the process.
    std::signal(SIGPIPE, SIG_IGN);
    thread_ = std::thread([this] { watch(); });
}

SignalWatcher::~SignalWatcher() {
    ending_ = true;
    thread_.join();
    const sigset_t set = watched();
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

SignalWatcher::Armed::Armed(SignalWatcher& watcher, std::function<void()> stop, std::optional<std::chrono::milliseconds> patience)
    : watcher_(watcher) {
    watcher_.set_stop(std::move(stop), patience);
}
SignalWatcher::Armed::~Armed() { watcher_.set_stop({}, {}); }

void SignalWatcher::set_stop(std::function<void()> stop, std::optional<std::chrono::milliseconds> patience) {
    const std::lock_guard lock(mutex_);
    stop_ = std::move(stop);
    patience_ = patience;
}

void SignalWatcher::watch() {
    const sigset_t set = watched();
    const timespec timeout{.tv_sec = 0, .tv_nsec = wait_nanoseconds};
    std::optional<std::chrono::steady_clock::time_point> ends_by;
    while (!ending_) {
        const int signal = sigtimedwait(&set, nullptr, &timeout);
        if (ends_by && std::chrono::steady_clock::now() > *ends_by) {
            spdlog::error("the program has not stopped in time and ends now: what was not committed runs again");
            spdlog::default_logger()->flush();
            _exit(1);
        }
        if (signal < 0) continue;
        const std::lock_guard lock(mutex_);
        if (stopped_ || !stop_) _exit(exit_code_base + signal);
        stopped_ = true;
        if (patience_) ends_by = std::chrono::steady_clock::now() + *patience_;
        stop_();
    }
}

}  // namespace lorry::ops
