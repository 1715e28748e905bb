// What an answer must match: a JSON schema, a regular expression, a list of choices or a Lark grammar. A grammar says which tokens may come
// next (llguidance). consumer/preparer.cpp compiles a job's grammar; each sequence (engine/sequence.h) has an answer of its own.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/text/token.h"
#include "schema/check.h"
#include "schema/structure.h"

struct lorry_grammar;
struct lorry_grammar_answer;
struct lorry_grammar_compiler;

namespace lorry::engine {

class Tokenizer;

// Constant; may be shared by many threads.
class Grammar {
public:
    // How far one answer has come. One thread at a time. It may outlive its grammar.
    class Answer {
    public:
        // Takes the token that was drawn, which must have been allowed and be no end token. True if nothing may follow: the answer is
        // complete. The error says that the grammar became too complex.
        Expected<bool, std::string> accept(TokenId token);
        struct Forced {
            std::vector<TokenId> tokens;
            bool complete = false;  // nothing may follow them
        };
        // Takes the tokens of the only text that may come next, as the tokenizer divides it; none where several may. The answer must not be
        // complete.
        Expected<Forced, std::string> force();
        // Bit t % 32 of word t / 32 says whether token t may come next; end tokens may where the answer may end. The answer must not be
        // complete. Valid until the next call.
        Expected<std::span<const std::uint32_t>, std::string> allowed();

    private:
        friend class Grammar;
        struct Free {
            void operator()(lorry_grammar_answer* handle) const;
        };
        std::unique_ptr<lorry_grammar_answer, Free> handle_;
        std::vector<std::uint32_t> allowed_;
    };
    Answer begin() const;

private:
    friend class GrammarCompiler;
    struct Free {
        void operator()(lorry_grammar* handle) const;
    };
    std::unique_ptr<lorry_grammar, Free> handle_;
};

// Compiles grammars for one tokenizer and keeps those that were asked for last: most jobs of a batch ask for the same one. Any number of
// threads.
class GrammarCompiler {
public:
    // vocabulary: of the model, which draws no other tokens. end_tokens: those that may end an answer. The tokenizer outlives the compiler.
    GrammarCompiler(const Tokenizer& tokenizer, std::int64_t vocabulary, std::vector<TokenId> end_tokens);
    ~GrammarCompiler();

    // Never null. The error says what is wrong with the structure. The first call takes time for each token of the vocabulary.
    Expected<std::shared_ptr<const Grammar>, std::string> compile(const schema::Structure& structure);

private:
    using Shared = std::shared_ptr<const Grammar>;
    struct Kept {
        std::string key;
        Shared grammar;
    };
    struct Free {
        void operator()(lorry_grammar_compiler* handle) const;
    };

    Expected<Shared, std::string> compile_anew(int kind, std::string_view text);  // kind: a lorry_grammar_kind

    const Tokenizer& tokenizer_;
    const std::int64_t vocabulary_;
    const std::vector<TokenId> end_tokens_;
    std::mutex mutex_;                                      // guards all below
    std::unique_ptr<lorry_grammar_compiler, Free> handle_;  // null before the first call
    std::list<Kept> kept_;                                  // the one that was asked for last comes first
    std::unordered_map<std::string_view, std::list<Kept>::iterator> places_;
};

}  // namespace lorry::engine
