// Finds stop texts in a drawn text, also across token borders, and says which part of the text is final and can be streamed. Used by
// engine/sequence.h: each sequence has one. The engine's thread only.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lorry::engine {

class StopMatcher {
public:
    // stops: not empty each; outlive the matcher. include: a matched stop text stays part of the text (vLLM's include_stop_str_in_output).
    StopMatcher(std::span<const std::string> stops, bool include) : stops_(stops), include_(include) {}

    // Appends text. True if a stop text is complete; the text then ends before its first occurrence, or after it with `include`. While
    // `armed` is false (min_tokens not reached), nothing matches, and text pushed then is never part of a later match.
    bool push(std::string_view piece, bool armed);
    // The text so far; after a match, the text up to the match.
    const std::string& text() const { return text_; }
    // Text that no later match can remove and that was not returned before. final: the text has ended, so all of it is certain.
    std::string take_certain(bool final);

private:
    std::span<const std::string> stops_;
    bool include_ = false;
    std::string text_;
    std::size_t searchable_ = 0;  // matches start here or later
    std::size_t taken_ = 0;       // bytes already returned by take_certain
};

}  // namespace lorry::engine
