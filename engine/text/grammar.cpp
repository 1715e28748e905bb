// Implements grammars with the crate's C functions, and keeps those that were compiled last.
#include "engine/text/grammar.h"

#include <stdexcept>

#include "engine/text/abi.h"
#include "engine/text/lorry_grammar.h"
#include "engine/text/tokenizer.h"

namespace lorry::engine {
namespace {

// A grammar takes some 100 kB; a hostile one up to 8 MB.
constexpr std::size_t kept_max = 64;

lorry_grammar_kind kind_of(const schema::Structure& structure) {
    switch (structure.kind) {
        case schema::Structure::Kind::json_schema: return structure.compact ? LORRY_GRAMMAR_COMPACT_JSON_SCHEMA : LORRY_GRAMMAR_JSON_SCHEMA;
        case schema::Structure::Kind::regex: return LORRY_GRAMMAR_REGEX;
        case schema::Structure::Kind::choices: return LORRY_GRAMMAR_CHOICES;
        case schema::Structure::Kind::rules: return LORRY_GRAMMAR_RULES;
        case schema::Structure::Kind::lark: break;
    }
    return LORRY_GRAMMAR_LARK;
}

}  // namespace

void Grammar::Free::operator()(lorry_grammar* handle) const { lorry_grammar_free(handle); }

void Grammar::Answer::Free::operator()(lorry_grammar_answer* handle) const { lorry_grammar_answer_free(handle); }

Grammar::Answer Grammar::begin() const {
    Answer answer;
    lorry_grammar_answer* handle = nullptr;
    std::string error;
    const auto status = lorry_grammar_begin(handle_.get(), &handle, abi::sink_into(error));
    CHECK(status == LORRY_TEXT_OK, "a compiled grammar can begin");
    answer.handle_.reset(handle);
    return answer;
}

Expected<bool, std::string> Grammar::Answer::accept(TokenId token) {
    bool complete = false;
    std::string error;
    if (lorry_grammar_accept(handle_.get(), token, &complete, abi::sink_into(error)) != LORRY_TEXT_OK) return unexpected(std::move(error));
    return complete;
}

Expected<Grammar::Answer::Forced, std::string> Grammar::Answer::force() {
    Forced forced;
    std::string error;
    if (lorry_grammar_force(handle_.get(), abi::sink_into(forced.tokens), &forced.complete, abi::sink_into(error)) != LORRY_TEXT_OK)
        return unexpected(std::move(error));
    return forced;
}

Expected<std::span<const std::uint32_t>, std::string> Grammar::Answer::allowed() {
    std::string error;
    if (lorry_grammar_allowed(handle_.get(), abi::sink_into(allowed_), abi::sink_into(error)) != LORRY_TEXT_OK)
        return unexpected(std::move(error));
    return std::span<const std::uint32_t>(allowed_);
}

void GrammarCompiler::Free::operator()(lorry_grammar_compiler* handle) const { lorry_grammar_compiler_free(handle); }

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, std::int64_t vocabulary, std::vector<TokenId> end_tokens)
    : tokenizer_(tokenizer), vocabulary_(vocabulary), end_tokens_(std::move(end_tokens)) {}

GrammarCompiler::~GrammarCompiler() = default;

Expected<GrammarCompiler::Shared, std::string> GrammarCompiler::compile(const schema::Structure& structure) {
    const lorry_grammar_kind kind = kind_of(structure);
    std::string key = std::to_string(kind) + structure.text;
    const std::lock_guard lock(mutex_);
    if (const auto place = places_.find(key); place != places_.end()) {
        kept_.splice(kept_.begin(), kept_, place->second);
        return kept_.front().grammar;
    }
    auto compiled = compile_anew(kind, structure.text);
    if (!compiled) return compiled;
    if (kept_.size() == kept_max) {
        places_.erase(kept_.back().key);
        kept_.pop_back();
    }
    kept_.push_front({.key = std::move(key), .grammar = *compiled});
    places_.emplace(kept_.front().key, kept_.begin());
    return compiled;
}

Expected<GrammarCompiler::Shared, std::string> GrammarCompiler::compile_anew(int kind, std::string_view text) {
    std::string error;
    if (handle_ == nullptr) {
        lorry_grammar_compiler* handle = nullptr;
        const auto status = lorry_grammar_compiler_new(tokenizer_.handle_.get(), static_cast<std::size_t>(vocabulary_), end_tokens_.data(),
                                                       end_tokens_.size(), &handle, abi::sink_into(error));
        if (status != LORRY_TEXT_OK) return unexpected(std::move(error));
        handle_.reset(handle);
    }
    lorry_grammar* handle = nullptr;
    const auto status =
        lorry_grammar_compile(handle_.get(), static_cast<lorry_grammar_kind>(kind), abi::view_of(text), &handle, abi::sink_into(error));
    if (status != LORRY_TEXT_OK) return unexpected(std::move(error));
    auto grammar = std::make_unique<Grammar>();
    grammar->handle_.reset(handle);
    return Shared(std::move(grammar));
}

}  // namespace lorry::engine
