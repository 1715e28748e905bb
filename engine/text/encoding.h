// Texts as encoder models read them: ids with token types and the places of the text they came from. Made by Tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/text/token.h"

namespace lorry::engine {

// Where a token came from.
struct TokenSpan {
    // Characters (code points) [begin, end) of the text; both 0 for tokens that the post-processor added.
    std::int32_t begin = 0;
    std::int32_t end = 0;
    std::int32_t text = -1;  // 0 or 1: the first or second text; -1: added by the post-processor
    std::int32_t word = -1;  // the index of the word in its text, as word_ids of Hugging Face; -1: not in a word

    friend bool operator==(const TokenSpan&, const TokenSpan&) = default;
};

// All vectors are of the same size.
struct Encoding {
    std::vector<TokenId> ids;
    std::vector<std::int32_t> types;  // the token type of each, usually 0 or 1
    std::vector<TokenSpan> spans;
};

// The side of a text that loses tokens.
enum class TruncationSide { left, right };

// As Hugging Face's: longest_first shortens the longer text, and both to the same length if that is not enough.
enum class TruncationStrategy { longest_first, only_first, only_second };

struct EncodeLimit {
    std::size_t max_tokens;  // special tokens included
    TruncationSide side = TruncationSide::right;
    TruncationStrategy strategy = TruncationStrategy::longest_first;
};

// How a long text is cut into windows.
struct WindowLimit {
    std::size_t max_tokens;    // of one window, special tokens included
    std::size_t stride = 0;    // tokens of the text that a window repeats from the one before it
    std::size_t windows_max;   // a text that has more is refused
    std::size_t repeated = 0;  // characters (code points) at the beginning of the text whose tokens each window begins with
};

}  // namespace lorry::engine
