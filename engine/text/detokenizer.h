// Turns the generated ids of one request into text, one id at a time, at constant cost per token. Used by sequence.cpp to find stop texts
// and to stream.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/text/token.h"

struct lorry_text_detokenizer;

namespace lorry::engine {

class Tokenizer;

// Call order: prime() if the ids continue a prompt; push() for each id; finish() once. One thread at a time. It may outlive the tokenizer.
//
// The texts of all push() calls and finish() together equal tokenizer.decode of the same ids; after prime(), they equal what the ids add to
// the decoded prompt. There is one difference, with byte fallback (SentencePiece) only: if a run of byte tokens is not UTF-8, decode
// replaces the whole run by U+FFFD, while here characters that were complete before the first wrong byte have already been returned.
class Detokenizer {
public:
    Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens);

    // Sets the tokens before the generated ones. A leading space is then kept, and a character that the prompt leaves unfinished is
    // completed.
    void prime(std::span<const TokenId> prompt);
    // Returns the text that became certain: whole characters, often none. Throws std::runtime_error if the tokenizer's decoder fails.
    std::string push(TokenId id);
    // Returns U+FFFD for an unfinished character at the end, or nothing.
    std::string finish();

private:
    struct Free {
        void operator()(lorry_text_detokenizer* handle) const;
    };

    std::unique_ptr<lorry_text_detokenizer, Free> handle_;
};

}  // namespace lorry::engine
