// Merges the chunks of one streamed call into what its client is sent. If a worker ends, another runs the call again, and its chunks come
// again under another attempt: what the client already has is left out, and the rest continues where the stream had stopped. Used by
// kafka_calls.cpp. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "schema/json.h"

namespace lorry::consumer {

// Attempts are compared by what their chunks say for each choice: role, text, reasoning, tool calls, end. Where one chunk ends and the next
// begins does not count, because it depends on the pace of steps; neither do ids and times.
class CallStream {
public:
    // seq counts an attempt's chunks from 0. Returns the chunk to send, or its part that is new; nullopt: nothing of it.
    std::optional<schema::Json> take(std::int64_t attempt, std::int64_t seq, const schema::Json& chunk);
    // Whether this many chunks of the attempt were taken.
    bool has(std::int64_t attempt, std::int64_t chunks) const;
    // Whether the attempt's chunks do not say what was sent: the stream cannot end well if this attempt ended the call.
    bool differs(std::int64_t attempt) const;

private:
    // How far an attempt has come in one choice.
    struct Place {
        std::size_t matched = 0;  // bytes of what was sent
        std::string channel;      // of its last part
    };
    struct Attempt {
        std::int64_t chunks = 0;
        bool differs = false;
        std::map<std::int64_t, Place> places = {};  // by choice
    };
    enum class News : std::uint8_t { none, all, end, different };
    News match(Place& place, std::string& sent, const std::string& channel, const std::string& text, std::string& rest);

    std::map<std::int64_t, Attempt> attempts_;
    std::map<std::int64_t, std::string> sent_;  // by choice: its parts, each after the name of its channel
};

}  // namespace lorry::consumer
