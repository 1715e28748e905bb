// Threads that parse the bodies of calls, so that large ones do not keep the network's thread from others. Used by gateway.cpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "ops/gateway/task_threads.h"
#include "schema/job.h"
#include "schema/json.h"

namespace lorry::ops {

struct ReadBody {
    std::string text;                  // one JSON object without white space around its parts
    std::optional<std::string> model;  // as `text` names it; nullopt: it names none, or not by a string
    bool is_stream = false;            // it asks for an event stream
    bool goes_first = false;           // schema::goes_first
};
// Why a body that was parsed is no JSON object. It quotes the body, so it is for the sender alone.
schema::JobError body_error(const std::string& body, const Expected<schema::Json, std::string>& parsed);
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

    // Calls `done` on a thread of its own, once, unless this is destroyed before. False, and no call: too much waits. The network's thread.
    bool read(std::string body, std::function<void(Body)> done);

private:
    const Options options_;
    std::atomic<std::size_t> bytes_ = 0;
    TaskThreads threads_;  // last: they use all of the above
};

}  // namespace lorry::ops
