// When a drawn text ends: stop texts across token borders, and how much of it is certain enough to be streamed. One per request that
// draws; the engine's thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lorry::engine {

class StopMatcher {
public:
    // include: a matched stop text stays part of the text (vLLM's include_stop_str_in_output).
    StopMatcher(std::vector<std::string> stops, bool include) : stops_(std::move(stops)), include_(include) {}

    // Appends text; true when a stop text is complete, and the text then ends before (or after) its first occurrence. While `armed` is
    // false (min_tokens not reached) nothing matches, and what was pushed then never takes part in a later match.
    bool push(std::string_view piece, bool armed);
    // All text so far; after a match, the text up to it.
    const std::string& text() const { return text_; }
    // Text that no later match can take back and that was not returned before. `final`: the text has ended, all of it is certain.
    std::string take_certain(bool final);

private:
    std::vector<std::string> stops_;
    bool include_ = false;
    std::string text_;
    std::size_t searchable_ = 0;  // matches start here or later
    std::size_t taken_ = 0;       // bytes already returned by take_certain
};

}  // namespace lorry::engine
