// What an answer must match: a JSON schema, a regular expression, a list of choices or a Lark grammar. A grammar says which tokens may come
// next (llguidance). consumer/text/text_preparer.cpp compiles a job's grammar; each sequence (engine/sequence.h) has an answer of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
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

// Compiles grammars for one tokenizer and caches the most recently requested ones, with the errors of those that cannot be compiled: most
// jobs of a batch request the same one. Any number of threads, which compile at the same time; equal ones are compiled once.
class GrammarCompiler {
public:
    using Shared = std::shared_ptr<const Grammar>;
    using Result = Expected<Shared, std::string>;
    using Pending = std::shared_future<Result>;

    // vocabulary: of the model, which draws no other tokens. end_tokens: those that may end an answer. kept_bytes_max: of what is kept,
    // with its text. The tokenizer outlives the compiler.
    GrammarCompiler(const Tokenizer& tokenizer, std::int64_t vocabulary, std::vector<TokenId> end_tokens,
                    std::size_t kept_bytes_max = std::size_t{64} << 20);
    ~GrammarCompiler();

    // Never null. The error says what is wrong with the structure. The first call takes time for each token of the vocabulary.
    Result compile(const schema::Structure& structure) const;
    // What compile() would return at once because it is cached. Not valid: compile() would have to compile, or wait for another thread.
    Pending find(const schema::Structure& structure) const;

    struct Stats {
        std::uint64_t compilations = 0;  // so far, with those that failed
        std::size_t kept = 0;            // grammars and errors
        std::size_t kept_bytes = 0;
    };
    Stats stats() const;

private:
    struct Kept {
        std::string key;
        Pending result;
        std::optional<std::size_t> bytes = {};  // nullopt: it is being compiled
    };
    struct Compiled {
        Result result;
        bool is_final = false;  // another attempt would end in the same way
    };
    struct Free {
        void operator()(lorry_grammar_compiler* handle) const;
    };

    Compiled compile_anew(const schema::Structure& structure) const;
    void settle(std::list<Kept>::iterator kept, const Compiled& compiled) const;
    void forget(std::list<Kept>::iterator kept) const;
    // Null, and the reason in `error`, if there is none for this tokenizer.
    const lorry_grammar_compiler* handle(std::string& error) const;

    const Tokenizer& tokenizer_;
    const std::int64_t vocabulary_;
    const std::vector<TokenId> end_tokens_;
    const std::size_t kept_bytes_max_;

    mutable std::mutex handle_mutex_;
    mutable std::unique_ptr<lorry_grammar_compiler, Free> handle_;  // null before the first call; guarded by handle_mutex_

    mutable std::mutex mutex_;      // guards all below
    mutable std::list<Kept> kept_;  // the one that was asked for last comes first
    mutable std::unordered_map<std::string_view, std::list<Kept>::iterator> places_;
    mutable std::size_t kept_bytes_ = 0;
    mutable std::uint64_t compilations_ = 0;
};

}  // namespace lorry::engine
