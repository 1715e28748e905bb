// Grammars over the vocabulary of the hash model, for tests of the engine.
#pragma once

#include <memory>
#include <string>

#include "engine/text/grammar.h"
#include "tests/support/gpt2_tokenizer.h"
#include "tests/support/hash_model.h"

namespace lorry::tests {

// Ends answers. It is "~" in the vocabulary, which no grammar of the tests has.
inline constexpr engine::TokenId grammar_end = 93;

inline std::shared_ptr<const engine::Grammar> grammar_of(const std::string& regex, std::int64_t vocabulary = hash_vocabulary) {
    engine::GrammarCompiler compiler(gpt2_tokenizer(), vocabulary, {grammar_end});
    return *compiler.compile({.kind = schema::Structure::Kind::regex, .text = regex});
}

}  // namespace lorry::tests
