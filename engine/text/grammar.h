// What an answer must match: a JSON schema, a regular expression, a list of choices or a Lark grammar. A grammar says which tokens may come
// next (llguidance). consumer/text/text_preparer.cpp compiles a job's grammar; each sequence (engine/sequence.h) has an answer of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/text/grammar_cache.h"
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
        // A copy of this answer as far as it has come. What happens to the copy does not change this one.
        Answer copy() const;
        // Takes the token that was drawn, which must have been allowed and must not be an end token. True if nothing may follow: the answer
        // is complete. The error says that the grammar became too complex.
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
    // Measured.
    struct Size {
        std::size_t bytes = 0;
        std::size_t answer_bytes = 0;  // of each answer that has begun to draw
    };
    Size size() const;

private:
    friend class GrammarCompiler;
    struct Free {
        void operator()(lorry_grammar* handle) const;
    };
    std::unique_ptr<lorry_grammar, Free> handle_;
};

// Compiles grammars for one tokenizer. Any number of threads, which compile at the same time.
class GrammarCompiler {
public:
    using Shared = GrammarCache::Shared;
    using Result = GrammarCache::Result;
    using Pending = GrammarCache::Pending;

    // vocabulary: of the model, which draws no other tokens. end_tokens: those that may end an answer. shared: where what it compiles is
    // kept until the compiler ends; nullptr: in a cache of its own. Tokenizer and cache outlive the compiler.
    GrammarCompiler(const Tokenizer& tokenizer, std::int64_t vocabulary, std::vector<TokenId> end_tokens, GrammarCache* shared = nullptr);
    ~GrammarCompiler();

    // Never null. The error says what is wrong with the structure. The first call takes time for each token of the vocabulary.
    Result compile(const schema::Structure& structure) const;
    // What compile() would return at once because it is cached. Not valid: compile() would have to compile, or wait for another thread.
    Pending find(const schema::Structure& structure) const;

private:
    struct Free {
        void operator()(lorry_grammar_compiler* handle) const;
    };

    // Equal for structures that this compiles to the same grammar.
    std::string key_of(const schema::Structure& structure) const;
    GrammarCache::Compiled compile_anew(const schema::Structure& structure) const;
    // Null, and the reason in `error`, if there is none for this tokenizer.
    const lorry_grammar_compiler* handle(std::string& error) const;

    const Tokenizer& tokenizer_;
    const std::int64_t vocabulary_;
    const std::vector<TokenId> end_tokens_;
    std::optional<GrammarCache> own_cache_;
    GrammarCache& cache_;
    const std::string key_prefix_;  // of all its keys in the cache

    mutable std::mutex handle_mutex_;
    mutable std::unique_ptr<lorry_grammar_compiler, Free> handle_;  // null before the first call; guarded by handle_mutex_
};

}  // namespace lorry::engine
