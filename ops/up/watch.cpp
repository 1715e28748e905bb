// A loop that sleeps, and looks.
#include "ops/up/watch.h"

#include <utility>

namespace lorry::ops {
namespace {

constexpr std::chrono::milliseconds watch_pause{200};

}  // namespace

Watch::Watch(std::function<void()> check, std::function<void()> on_failure)
    : check_(std::move(check)), on_failure_(std::move(on_failure)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

void Watch::run(const std::stop_token& stop) {
    try {
        std::unique_lock lock(mutex_);
        while (!stop.stop_requested()) {
            check_();
            stopping_.wait_for(lock, stop, watch_pause, [] { return false; });
        }
    } catch (...) {
        failure_ = std::current_exception();
        on_failure_();
    }
}

void Watch::end() {
    thread_ = {};
    if (failure_) std::rethrow_exception(failure_);
}

}  // namespace lorry::ops
