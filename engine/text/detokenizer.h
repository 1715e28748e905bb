// Turns one request's generated ids into text as they come, at constant cost per token. Used where stop strings are looked for and chunks
// are made.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/text/token.h"

struct lorry_text_detokenizer;

namespace lorry::engine {

class Tokenizer;

// Call order: prime, if the ids continue a prompt; push for each id; finish once. One thread at a time; it may outlive the tokenizer.
//
// All pushes and finish together equal tokenizer.decode of the same ids; when primed, what those ids add to the decoded prompt. One
// difference, with byte fall-back (SentencePiece) only: when a run of byte tokens turns out not to be UTF-8, decode replaces all of it by
// U+FFFD, while characters that were complete before the first wrong byte are handed out here at once and so stay.
class Detokenizer {
public:
    Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens);

    // The tokens before the generated ones: after them a leading space is kept, and a character that they leave unfinished is completed.
    void prime(std::span<const TokenId> prompt);
    // The text that became certain: whole characters, often none. Throws std::runtime_error if the tokenizer's decoder fails.
    std::string push(TokenId id);
    // What an unfinished character at the end comes to: U+FFFD, or nothing.
    std::string finish();

private:
    struct Free {
        void operator()(lorry_text_detokenizer* handle) const;
    };

    std::unique_ptr<lorry_text_detokenizer, Free> handle_;
};

}  // namespace lorry::engine
