// The interface between the gateway and what runs its calls: a call goes in, chunks and one end come back. Implemented by consumer/memory
// (`lorry up`) and by fakes in tests; called by ops/gateway.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "schema/completion.h"

namespace lorry::consumer {

// A job that somebody waits for.
struct Call {
    std::string id;      // its custom_id, each once
    std::string url;     // of schema/endpoint.h
    std::string body;    // a JSON object, the job's body
    std::string tenant;  // empty: none
};

// Why a call is not run.
struct CallRefusal {
    enum class Kind : std::uint8_t {
        full,         // too many calls wait or run
        unavailable,  // nothing can run it at the moment
    };
    Kind kind = Kind::full;
    std::chrono::seconds retry_after{1};
};

struct CallResult {
    int status = 200;  // HTTP's
    std::string body;  // JSON: the result's body, or OpenAI's error object
};
using CallEnd = std::variant<CallResult, schema::BatchFailure, CallRefusal>;

// Called from threads of the backend, for one event of a call at a time. It must not block.
class CallListener {
public:
    virtual ~CallListener() = default;
    // A part of a streamed answer, in order: the JSON of a chunk. It is not taken back.
    virtual void on_chunk(const std::string& id, std::string chunk) = 0;
    // Exactly once for each call, after its chunks, unless it was cancelled.
    virtual void on_end(const std::string& id, CallEnd end) = 0;
};

// Any thread.
class CallBackend {
public:
    virtual ~CallBackend() = default;
    // `listener` outlives the call. A refused call has no events.
    virtual std::optional<CallRefusal> submit(Call call, CallListener& listener) = 0;
    // Nobody waits for the call any more. Events that are on their way may still come.
    virtual void cancel(const std::string& id) = 0;
};

}  // namespace lorry::consumer
