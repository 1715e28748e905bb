// A tokenizer with the special tokens of the harmony format, in the vocabulary of the hash model. Used by tests of
// engine/ and consumer/. Loaded once per process.
#pragma once

#include "engine/text/tokenizer.h"

namespace lorry::tests {

// GPT-2's of tests/data/text; the seven special tokens stand in the order of engine::harmony_marks after its 480 others.
const engine::Tokenizer& harmony_tokenizer();
engine::TokenId harmony_token(std::string_view mark);

}  // namespace lorry::tests
