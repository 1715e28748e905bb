// The state of a text that may begin with a thought, and the search for marks in a text that arrives in pieces. Used by thought.h and
// harmony.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lorry::engine {

// Where a text starts: the prompt may have opened a thought, or have closed one.
enum class ThoughtState : std::uint8_t {
    undecided,  // a thought may begin here: only white space, or the beginning of its mark, was written
    thinking,
    answering,
};

// The longest end of `text` that is a beginning of `mark`, but not all of it, in bytes.
std::size_t begun_mark(std::string_view text, std::string_view mark);

}  // namespace lorry::engine
