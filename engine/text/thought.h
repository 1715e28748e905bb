// Divides what a reasoning model writes into its thought and its answer, which marks separate: "<think>…</think>…". Each sequence has a
// reader, so that a grammar and stop texts apply to the answer; consumer/answer/answer_reader.h has one for each answer of a result.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lorry::engine {

struct ThoughtMarks {
    std::string_view start;
    std::string_view end;
};

// Where a text starts: the prompt may have opened a thought, or have closed one.
enum class ThoughtState : std::uint8_t {
    undecided,  // a thought may begin here: only white space, or the beginning of its mark, was written
    thinking,
    answering,
};

// One thread at a time.
class ThoughtReader {
public:
    // The texts of the marks outlive the reader, and do not begin with white space.
    ThoughtReader(const ThoughtMarks& marks, ThoughtState state) : marks_(marks), state_(state) {}

    // Text that became certain, without marks. White space around a thought and before the answer that follows it is left out.
    struct Parts {
        std::string thought;
        std::string answer;
    };
    Parts push(std::string_view text);
    // The text has ended: returns what was held back.
    Parts finish();
    ThoughtState state() const { return state_; }

private:
    void decide(Parts& parts);
    void think(Parts& parts);
    void answer(Parts& parts);

    ThoughtMarks marks_;
    ThoughtState state_;
    std::string held_;        // not returned yet
    std::size_t spaces_ = 0;  // of held_: white space at its beginning that need not be looked at again
    bool thought_ = false;    // there was one before the answer
    bool has_words_ = false;  // of the thought or the answer, a character that is not white space was returned
};

// The longest end of `text` that is a beginning of `mark`, but not all of it, in bytes.
std::size_t begun_mark(std::string_view text, std::string_view mark);

}  // namespace lorry::engine
