// Looks now and then whether something has failed, on a thread of its own, while the command's own thread works. Used by `lorry up`.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace lorry::ops {

class Watch {
public:
    // check: throws once it has failed. Then on_failure is called, which makes the work end. Both on the watch's thread.
    Watch(std::function<void()> check, std::function<void()> on_failure);
    // Looks no more. Throws what `check` threw.
    void end();

private:
    void run(const std::stop_token& stop);

    const std::function<void()> check_;
    const std::function<void()> on_failure_;
    std::mutex mutex_;
    std::condition_variable_any stopping_;
    std::exception_ptr failure_;  // the thread's, until it has ended
    std::jthread thread_;
};

}  // namespace lorry::ops
