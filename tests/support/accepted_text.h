// Which texts a grammar lets through as whole answers, with GPT-2's vocabulary. Used by tests that compare it with other programs' answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/grammar.h"
#include "tests/support/gpt2_tokenizer.h"

namespace lorry::tests {

// Its last token ends answers.
inline engine::GrammarCompiler& gpt2_compiler() {
    static const auto vocabulary = static_cast<std::int64_t>(gpt2_tokenizer().vocabulary_size());
    static engine::GrammarCompiler compiler(gpt2_tokenizer(), vocabulary, {static_cast<engine::TokenId>(vocabulary - 1)});
    return compiler;
}

inline const std::string& spelling_of(engine::TokenId token) {
    static const std::vector<std::string> spellings = [] {
        std::vector<std::string> all;
        for (std::size_t id = 0; id < gpt2_tokenizer().vocabulary_size(); ++id)
            all.push_back(gpt2_tokenizer().token_bytes(static_cast<engine::TokenId>(id)));
        return all;
    }();
    return spellings[static_cast<std::size_t>(token)];
}

// The longest token that may come next and with which the text begins.
inline std::optional<engine::TokenId> next_token_of(std::span<const std::uint32_t> allowed, std::string_view text) {
    std::optional<engine::TokenId> best;
    for (std::size_t id = 0; id < gpt2_tokenizer().vocabulary_size(); ++id) {
        const auto token = static_cast<engine::TokenId>(id);
        if ((allowed[id / 32] >> (id % 32) & 1U) == 0) continue;
        const std::string& bytes = spelling_of(token);
        if (bytes.empty() || !text.starts_with(bytes)) continue;
        if (!best || bytes.size() > spelling_of(*best).size()) best = token;
    }
    return best;
}

// Whether an answer may be this text as a whole. The error is the compiler's.
inline Expected<bool, std::string> grammar_takes(const schema::Structure& structure, std::string_view text) {
    const auto grammar = gpt2_compiler().compile(structure);
    if (!grammar) return unexpected(grammar.error());
    const std::size_t end = gpt2_tokenizer().vocabulary_size() - 1;
    engine::Grammar::Answer answer = (*grammar)->begin();
    while (true) {
        const auto forced = answer.force().value();
        for (const engine::TokenId token : forced.tokens) {
            if (!text.starts_with(spelling_of(token))) return false;
            text.remove_prefix(spelling_of(token).size());
        }
        if (forced.complete) return text.empty();
        const auto allowed = answer.allowed().value();
        if (text.empty()) return (allowed[end / 32] >> (end % 32) & 1U) != 0;
        const auto token = next_token_of(allowed, text);
        if (!token) return false;
        text.remove_prefix(spelling_of(*token).size());
        if (answer.accept(*token).value()) return text.empty();
    }
}

}  // namespace lorry::tests
