// Divides what a reasoning model writes into its thought and its answer, which marks separate: "<think>…</think>…". Each sequence has a
// reader, so that a grammar and stop texts apply to the answer; consumer/answer/answer_reader.h has one for each answer of a result.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/text/harmony.h"
#include "engine/text/thought_state.h"

namespace lorry::engine {

// White space, which may stand around a thought.
inline constexpr std::string_view thought_space = " \t\r\n";

// As prompts spell them.
struct ThoughtMarks {
    std::string_view start;
    std::string_view end;
    // The text is made of messages (harmony.h): any of them may be a thought.
    bool harmony = false;
    std::string_view next = "";    // harmony: stands between a thought and the message that follows it
    std::string_view answer = "";  // harmony: the header of a message with content
};

// One thread at a time.
class ThoughtReader {
public:
    // The texts of the marks outlive the reader, and do not begin with white space. is_structured: the answer begins where the thought has
    // ended, white space included, because a grammar says what it is.
    ThoughtReader(const ThoughtMarks& marks, ThoughtState state, bool is_structured = false)
        : marks_(marks), state_(state), is_structured_(is_structured) {
        if (marks.harmony) messages_.emplace(state);
    }

    // Text that became certain, without marks. White space around a thought is left out, except in messages, and so is that before the
    // answer that follows it, except in a structured one.
    struct Parts {
        std::string thought;
        std::string answer;
    };
    Parts push(std::string_view text);
    // The text has ended: returns what was held back.
    Parts finish();
    ThoughtState state() const { return state_; }
    // No thought can come any more.
    bool is_settled() const { return state_ == ThoughtState::answering && !messages_; }

private:
    Parts parts_of(const std::vector<HarmonyPart>& messages);
    void decide(Parts& parts);
    void think(Parts& parts);
    void answer(Parts& parts);

    ThoughtMarks marks_;
    ThoughtState state_;
    bool is_structured_;
    std::optional<HarmonyReader> messages_;  // of marks_.harmony, which needs nothing of what follows
    std::string held_;                       // not returned yet
    std::size_t spaces_ = 0;                 // of held_: white space at its beginning that need not be looked at again
    bool thought_ = false;                   // there was one before the answer
    bool has_words_ = false;                 // of the thought or the answer, a character that is not white space was returned
};

}  // namespace lorry::engine
