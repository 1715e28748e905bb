// Threads that parse the bodies of calls, so that large ones do not keep the network's thread from others. Used by gateway.cpp.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "schema/job.h"

namespace lorry::ops {

struct ReadBody {
    std::string text;                  // one JSON object without white space around its parts
    std::optional<std::string> model;  // as `text` names it; nullopt: it names none, or not by a string
    bool is_stream = false;            // it asks for an event stream
};
// A body, or why it is none. Any thread.
Expected<ReadBody, schema::JobError> read_body(const std::string& body);

class BodyReaders {
public:
    using Body = Expected<ReadBody, schema::JobError>;
    struct Options {
        std::size_t threads = 2;
        std::size_t bytes_max = std::size_t{256} << 20;  // of bodies that wait or are being read
        std::function<Body(const std::string&)> read = read_body;
    };
    explicit BodyReaders(Options options);
    // Waits for those that are being read. What waits is dropped.
    ~BodyReaders();

    // Calls `done` on a thread of its own, once, unless this is destroyed before. False, and no call: too much waits.
    bool read(std::string body, std::function<void(Body)> done);

private:
    struct Task {
        std::string body;
        std::function<void(Body)> done;
    };
    void work();

    const Options options_;
    std::mutex mutex_;
    std::condition_variable has_tasks_;
    // Guarded by mutex_.
    std::deque<Task> tasks_;  // the oldest comes first
    std::size_t bytes_ = 0;
    bool is_closed_ = false;

    std::vector<std::thread> threads_;
};

}  // namespace lorry::ops
