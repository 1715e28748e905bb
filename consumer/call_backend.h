// The interfaces between the gateway and the code behind it. CallBackend runs calls: a call goes in, chunks and one end come back; it is
// implemented by consumer/kafka/calls and by fakes in tests. KeyDirectory knows the API keys, and DailyTokens knows what they have used;
// they are implemented by key_topic.h and status_topic.h in consumer/kafka/follow. All are called by ops/gateway.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "schema/completion.h"
#include "schema/key.h"

namespace lorry::consumer {

// A job that somebody waits for.
struct Call {
    std::string id;                          // its custom_id, each once
    std::string url;                         // of schema/endpoint.h
    std::string body;                        // a JSON object, the job's body
    std::string tenant;                      // empty: none
    std::string key;                         // the id of the caller's API key; empty: none
    std::vector<schema::Header> trace = {};  // of its request: traceparent and tracestate, if it has them
    // The id identifies this call of this tenant, whoever sends it again: it should run once. RepeatableCalls ensures that.
    bool repeatable = false;
};

// Why a call is not run.
struct CallRefusal {
    enum class Kind : std::uint8_t {
        full,           // too many calls wait or run
        unavailable,    // nothing can run it at the moment
        too_large,      // for what it would be sent over, whenever that is tried
        running,        // a repeatable call of this id has not ended
        other_content,  // the repeatable call of this id had another url or body
    };
    Kind kind = Kind::full;
    std::chrono::seconds retry_after{1};
};
// Temporary: no broker can be reached, or its records cannot be read.
inline constexpr CallRefusal call_unavailable{.kind = CallRefusal::Kind::unavailable, .retry_after = std::chrono::seconds(5)};

struct CallResult {
    int status = 200;                          // HTTP's
    std::string body;                          // JSON: the result's body, or OpenAI's error object
    std::optional<schema::Source> place = {};  // of the record that has it, if one has
    std::int64_t failed_tokens = 0;            // of an error: tokens that were computed for it all the same
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
    // The caller no longer waits for the call. Events that are on their way may still come.
    virtual void cancel(const std::string& id) = 0;
};

class KeyDirectory {
public:
    virtual ~KeyDirectory() = default;
    // The key of that id, expired and revoked ones as well; nullopt: there is none. Any thread; it must not block.
    virtual std::optional<schema::KeyRecord> find(std::string_view id) const = 0;
    // Whether all keys are known as they were seconds ago. If not, a key that is found may have been revoked. Any thread.
    virtual bool is_current() const = 0;
};

// What each key has used since midnight UTC, of all gateways and of batches.
class DailyTokens {
public:
    virtual ~DailyTokens() = default;
    // Tokens of prompts and answers of jobs that ended on that day, today or yesterday, 10 s ago or earlier. nullopt: it is not known at
    // the moment. Any thread; it must not block.
    virtual std::optional<std::int64_t> used(std::string_view key, std::chrono::sys_days day) const = 0;
};

}  // namespace lorry::consumer
